//! HTTP in small bounds: a thread that answers GET with a page. What a stranger can take of time,
//! memory and connections is fixed, and a request changes nothing.

mod answer;
mod request;
mod responder;

pub use answer::Answer;
pub use request::Request;
pub use responder::{Responder, respond};
