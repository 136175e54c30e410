//! The public behaviour of `SerialExecutor`. `serial_alloc.rs` tests its allocations.

mod support;

#[path = "support/occupied.rs"]
mod occupied;

#[path = "serial/asynchronous.rs"]
mod asynchronous;
#[path = "serial/asynchronous_timeout.rs"]
mod asynchronous_timeout;
#[path = "serial/bounded.rs"]
mod bounded;
#[path = "serial/capture.rs"]
mod capture;
#[path = "serial/close.rs"]
mod close;
#[path = "serial/combinators.rs"]
mod combinators;
#[path = "serial/deferred.rs"]
mod deferred;
#[path = "serial/hand_over.rs"]
mod hand_over;
#[path = "serial/handles.rs"]
mod handles;
#[path = "serial/inline.rs"]
mod inline;
#[path = "serial/into_inner.rs"]
mod into_inner;
#[path = "serial/levels.rs"]
mod levels;
#[path = "serial/lifecycle.rs"]
mod lifecycle;
#[path = "serial/linear.rs"]
mod linear;
#[path = "serial/metrics.rs"]
mod metrics;
#[path = "serial/nested.rs"]
mod nested;
#[path = "serial/never_inline.rs"]
mod never_inline;
#[path = "serial/panics.rs"]
mod panics;
#[path = "serial/post.rs"]
mod post;
#[path = "serial/queued.rs"]
mod queued;
#[path = "serial/shutdown.rs"]
mod shutdown;
#[path = "serial/threads.rs"]
mod threads;
#[path = "serial/transact.rs"]
mod transact;
#[path = "serial/try_run.rs"]
mod try_run;
#[path = "serial/under_load.rs"]
mod under_load;
#[path = "serial/waits.rs"]
mod waits;
