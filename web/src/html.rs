//! Prints views as pages, without a script: all pages and operations work without one.
//!
//! Only the escaping of `maud` puts a value into a page, and all values that come from a store pass through [`text`].
//!
//! The style sheet uses these classes: `num` for numbers, `muted` for what matters less, `word` for what is not broken into lines, `state
//! STATE` for the state of a task, of a worker or of a queue, `wide` for tables with many columns, `tiles` for lists of large numbers,
//! `warning` and `notice` for messages, `filter`, `operation` and `selection` for forms, `danger` for buttons that destroy something, and
//! `pager` for the links to other pages. Each cell has its heading in `data-label`.

pub(crate) mod bulk;
pub(crate) mod charts;
pub(crate) mod error;
pub(crate) mod find;
pub(crate) mod overview;
pub(crate) mod process;
pub(crate) mod queues;
pub(crate) mod table;
pub(crate) mod task;
pub(crate) mod tasks;
pub(crate) mod text;
pub(crate) mod workers;
pub(crate) mod workflow;

use axum::response::Html;
use maud::{DOCTYPE, Markup, html};

use crate::assets;
use crate::form_text::encoded;
use crate::store::ShownStore;
use crate::visit::{StoreVisit, Visit};

/// The frame of a page: everything around its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    visit: &'a Visit,
    store: Option<&'a ShownStore>,
    title: &'a str,
    /// `true` if parts of the page change while it is open.
    is_live: bool,
}

/// The pages of a store that the navigation lists: their titles, and their paths below the store.
const SECTIONS: [(&str, &str); 7] = [
    ("Overview", ""),
    ("Queues", "/queues"),
    ("Tasks", "/tasks/waiting"),
    ("Dead letters", "/dead"),
    ("Workers", "/workers"),
    ("Schedules", "/schedules"),
    ("Types", "/types"),
];

impl<'a> Frame<'a> {
    /// Returns the frame of a page. Without a store, the navigation lacks the pages of a store.
    pub(crate) fn new(visit: &'a Visit, store: Option<&'a ShownStore>, title: &'a str) -> Self {
        Self {
            visit,
            store,
            title,
            is_live: false,
        }
    }

    /// Returns the frame of a page of a store. The navigation marks the section that has the same title.
    pub(crate) fn of_store(visit: &'a StoreVisit, title: &'a str) -> Self {
        Self::new(&visit.visit, Some(&visit.store), title)
    }

    /// Lets the parts of the page change while it is open.
    pub(crate) fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// Puts the content of a page into the frame.
    pub(crate) fn page(self, content: Markup) -> Html<String> {
        let root = &self.visit.root;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) @if let Some(store) = self.store { " \u{b7} " (store.name) } " \u{b7} throng" }
                    link rel="icon" type="image/svg+xml" href={ (root) (assets::url("icon.svg")) };
                    script src={ (root) (assets::url("theme.js")) } {}
                    link rel="stylesheet" href={ (root) (assets::url("app.css")) };
                    @if self.is_live {
                        link rel="stylesheet" href={ (root) (assets::url("uplot.css")) };
                        script src={ (root) (assets::url("uplot.js")) } defer {}
                    }
                    script src={ (root) (assets::url("app.js")) } defer {}
                }
                body data-events=[self.events()] {
                    a.skip href="#main" { "Skip to the content" }
                    (self.header())
                    main #main { h1 { (self.title) } (content) }
                    (self.footer())
                }
            }
        };
        Html(page.into_string())
    }

    /// Returns the URL of the event stream.
    fn events(self) -> Option<String> {
        let store = self.store.filter(|_| self.is_live)?;
        Some(format!("{}s/{}/events", self.visit.root, store.name))
    }

    fn header(self) -> Markup {
        let root = &self.visit.root;
        html! {
            header {
                a.brand href=(root) { "throng" }
                (self.stores())
                nav aria-label="Pages" {
                    @if let Some(store) = self.store {
                        @for (title, path) in SECTIONS {
                            (self.link(title, &format!("s/{}{path}", store.name)))
                        }
                    }
                    @if self.visit.shared.registry.is_some() {
                        (self.link("Process", "process"))
                    }
                }
                @if let Some(store) = self.store {
                    form role="search" action={ (root) "s/" (store.name) "/find" } {
                        input type="search" name="q" aria-label="Find a task, a queue, a type or a schedule" placeholder="Find";
                        button { "Find" }
                    }
                }
            }
        }
    }

    /// Links to the other stores.
    fn stores(self) -> Markup {
        let stores = &self.visit.shared.stores;
        html! {
            @if stores.len() > 1 {
                nav.stores aria-label="Stores" {
                    @for store in stores {
                        @let is_current = self.store.is_some_and(|it| it.name == store.name);
                        a href={ (self.visit.root) "s/" (store.name) } aria-current=[is_current.then_some("true")] { (store.name) }
                    }
                }
            }
        }
    }

    fn link(self, title: &str, path: &str) -> Markup {
        let current = (title == self.title).then_some("page");
        html! { a href={ (self.visit.root) (path) } aria-current=[current] { (title) } }
    }

    fn footer(self) -> Markup {
        let visit = self.visit;
        html! {
            footer {
                @if let Some(user) = &visit.user { span { (text::line(user)) } }
                @if !visit.can_operate {
                    span {
                        span.badge { "read-only" } " Operations need " code { "Access::Operate" }
                        " from the access hook of the application, or " code { "throng web --operate" } "."
                    }
                }
                span.muted { "throng-web " (env!("CARGO_PKG_VERSION")) }
                p #live role="status" aria-live="polite" {}
            }
        }
    }
}

/// Returns a field of a form that is not visible.
fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

/// Returns a form with one button, which sends a name.
fn name_form(path: &str, name: &str, title: &str) -> Markup {
    html! {
        form.operation method="post" action=(path) {
            (hidden("name", &encoded(name)))
            button { (title) }
        }
    }
}
