//! HTTP with small bounds: a thread that answers GET with a page, and a client that requests one.
//! The time, memory and connections available to the other side are fixed, and a request changes
//! nothing.

mod access;
mod client;
mod client_response;
mod request;
mod responder;
mod response;
mod token;

pub use access::AccessPolicy;
pub use client::{Get, GetError, Url, UrlError, get};
pub use client_response::{ClientResponse, MalformedResponse};
pub use request::HttpRequest;
pub use responder::{HttpResponder, respond};
pub use response::HttpResponse;
pub use token::{Token, TokenError};
