//! The dashboard, through its service: pages, the API, access and operations.

#[path = "dashboard/access.rs"]
mod access;
#[path = "dashboard/api.rs"]
mod api;
#[path = "dashboard/hostile.rs"]
mod hostile;
#[path = "dashboard/operations.rs"]
mod operations;
#[path = "dashboard/pages.rs"]
mod pages;
#[path = "dashboard/stage.rs"]
mod stage;
#[path = "dashboard/support.rs"]
mod support;
