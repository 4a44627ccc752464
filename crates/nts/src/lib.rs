//! The cryptography of NTP: Network Time Security for NTP packets (RFC 8915, section 5), the AEAD
//! algorithms that it uses (RFC 5297, RFC 8452), cookies and their rotating keys, and symmetric-key
//! message authentication codes. It opens no file and no socket and reads no clock.

mod aead;
mod client;
mod cookie;
mod field;
mod given;
mod looks;
pub mod mac;
mod nonce;
mod secret;
mod server;
mod session;

pub use aead::Algorithm;
pub use aead::siv::{BATCH, BatchKeys};
pub use client::{
    ClientSession, Reply, ReplyFault, RequestTemplate, UNIQUE_ID_LEN, examine_reply, open_reply,
    request_len, seal_request,
};
pub use cookie::{
    COOKIE_LEN_MAX, CookieKeys, KEEP_DEFAULT, KEEP_MAX, ROTATION_DEFAULT, cookie_len,
};
pub use given::{GivenError, GivenSession};
pub use looks::{Looks, looks};
pub use nonce::Nonces;
pub use secret::{MasterSecret, SecretError};
pub use server::{
    COOKIES_MAX, Opened, Outgoing, REPLY_LEN_MAX, Refusal, nak, open_request, open_requests,
    seal_replies, seal_reply,
};
pub use session::{SessionKeys, WrongKeyLength};
