//! Control interface: one request line of JSON for each connection to a Unix socket, and one
//! response line. It can add and remove groups and children, but change neither the permitted
//! destinations nor the limits of the table file; a group that it adds brings its own sources and
//! rate.

mod client;
mod message;
mod server;

pub use client::{ControlClientError, request};
pub use message::{ControlRefusalClass, ControlRequest, ControlResponse, RequestParseResult};
pub use server::{ControlServer, ControlSocketError, default_path};
