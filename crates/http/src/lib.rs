//! HTTP with fixed limits: a server thread that responds to GET, and a client for one GET request.
//! The time, memory and connections of the other side are limited, and no request changes anything.

mod access;
mod client;
mod client_response;
mod request;
mod responder;
mod response;
mod token;

pub use access::AccessPolicy;
pub use client::{GetError, GetRequest, Url, UrlError, get};
pub use client_response::{MalformedResponse, ReceivedHttpResponse};
pub use request::HttpRequest;
pub use responder::{HttpResponder, respond};
pub use response::HttpResponse;
pub use token::{BearerToken, BearerTokenError};
