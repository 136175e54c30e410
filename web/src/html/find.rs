//! The page that lists what was found.

use axum::response::Html;
use maud::{Markup, html};

use super::Frame;
use super::table::link;
use super::text::line;
use crate::views::Answer;
use crate::views::find::FindView;
use crate::visit::StoreVisit;

pub(crate) fn page(visit: &StoreVisit, answer: &Answer<FindView>) -> Html<String> {
    let view = &answer.data;
    let tasks = format!("{}/tasks/waiting", visit.base());
    let queues = view
        .queues
        .iter()
        .map(|name| found("Queue", name, &link(&tasks, &[("queue", name)])));
    let types = view
        .types
        .iter()
        .map(|name| found("Type", name, &link(&tasks, &[("name", name)])));
    let schedules = view
        .schedule
        .iter()
        .map(|name| found("Schedule", name, &format!("{}/schedules", visit.base())));
    let found: Vec<_> = queues.chain(types).chain(schedules).collect();
    let dead = link(&format!("{}/dead", visit.base()), &[("name", &view.text)]);
    let waiting = link(&tasks, &[("name", &view.text)]);
    Frame::of_store(visit, "Find").page(html! {
        p { "Results for " strong { (line(&view.text)) } }
        @if found.is_empty() {
            p.muted { "No queue or type has a name that contains this text, no schedule has this name, and it is not the id of a task." }
        } @else {
            ul { @for it in &found { li { (it) } } }
        }
        p {
            "Tasks with exactly this type: "
            a href=(waiting) { "waiting" } ", " a href=(dead) { "dead letters" }
        }
    })
}

fn found(kind: &str, name: &str, url: &str) -> Markup {
    html! { (kind) " " a href=(url) { (line(name)) } }
}
