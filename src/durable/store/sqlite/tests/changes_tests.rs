//! Changes of tasks whose rows are damaged.

use super::*;
use crate::durable::Refusal;
use crate::durable::store::{Change, ChangeAnswer};

#[tokio::test]
async fn a_task_of_an_unreadable_kind_does_not_move() {
    for damage in ["kind = -7", "name = 'another'", "queue = 'another'"] {
        let file = File::new();
        let worker = Worker::new(&file.open().await).await;
        worker.enqueue([task(1).0, task(2).0]).await;
        file.sql(&format!(
            "UPDATE throng_task SET {damage} WHERE hex(id) LIKE '%01'"
        ));
        let change = Change::MoveTo(QueueName::new("q").unwrap());
        let answers = worker.store.change(vec![id(1), id(2)], change).await;
        let unreadable = ChangeAnswer::Refused(Refusal::Unreadable);
        assert_eq!(answers.unwrap(), [unreadable, ChangeAnswer::Changed]);
        assert_eq!(file.number("SELECT count(*) FROM throng_ready"), 2);
    }
}
