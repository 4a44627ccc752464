//! Control interface: one request line of JSON for each connection to a Unix socket, and one
//! response line. It can change the receivers of copies, but neither the permitted destinations nor
//! the rates: these are set by the table file.

mod client;
mod message;
mod server;

pub use client::{ControlClientError, request};
pub use message::{ControlRefusalClass, ControlRequest, ControlResponse, ParsedRequest};
pub use server::{ControlServer, ControlSocketError, default_path};
