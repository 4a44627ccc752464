//! HTTP in small bounds: a thread that answers GET with a page, and a client that asks for one.
//! What the other side can take of time, memory and connections is fixed, and a request changes
//! nothing.

mod answer;
mod client;
mod guard;
mod request;
mod responder;
mod response;
mod token;

pub use answer::Answer;
pub use client::{Get, GetError, Url, UrlError, get};
pub use guard::Guard;
pub use request::Request;
pub use responder::{Responder, respond};
pub use response::{Malformed, Response};
pub use token::{Token, TokenError};
