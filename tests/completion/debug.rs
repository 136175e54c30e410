//! Debug output.

use throng::CompletionStream;

use super::{bounded, slot};

#[test]
fn both_ends_show_their_state() {
    let (jobs, done) = bounded(2, 4);
    let open = slot(&jobs, 0);
    slot(&jobs, 1).complete(());
    for text in [format!("{jobs:?}"), format!("{done:?}")] {
        assert!(text.contains("running: 1"), "{text}");
        assert!(text.contains("outstanding: 2"), "{text}");
        assert!(text.contains("closed: false"), "{text}");
    }
    let text = format!("{open:?}");
    assert!(text.contains(&format!("{:?}", open.id())), "{text}");
    open.complete(());
    jobs.close();
    assert!(format!("{done:?}").contains("closed: true"));

    let text = format!("{:?}", CompletionStream::<(), ()>::builder().max_running(3));
    assert!(text.contains("max_running: 3"), "{text}");
}
