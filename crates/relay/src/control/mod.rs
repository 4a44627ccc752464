//! The control interface: one line of JSON for each connection to a Unix socket, and one line in
//! answer. It can change who gets copies, but neither where copies may go at all nor how many: that
//! stands in the table file.

mod client;
mod message;
mod server;

pub use client::{AskError, ask};
pub use message::{Answer, Fault, Request, Requested};
pub use server::{Control, ControlError, default_path};
