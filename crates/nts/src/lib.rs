//! Cryptography of NTP: Network Time Security for NTP packets (RFC 8915, section 5), its AEAD
//! algorithms (RFC 5297, RFC 8452), cookies and their rotating keys, and symmetric-key message
//! authentication codes. It opens no file and no socket and reads no clock.

mod aead;
mod client;
mod cookie;
mod field;
mod imported_session;
pub mod mac;
mod nonce;
mod secret;
mod server;
mod session;
mod trailer;

pub use aead::Algorithm;
pub use aead::siv::{BATCH, BatchKeys};
pub use client::{
    AuthenticReply, ClientSession, ReplyError, RequestTemplate, UNIQUE_ID_LEN, examine_reply,
    open_reply, request_len, seal_request,
};
pub use cookie::{
    COOKIE_LEN_MAX, CookieKeys, KEEP_DEFAULT, KEEP_MAX, ROTATION_DEFAULT, cookie_len,
};
pub use imported_session::{ImportedSession, ImportedSessionError};
pub use nonce::Nonces;
pub use secret::{MasterSecret, SecretError};
pub use server::{
    AuthenticRequest, COOKIES_MAX, NtsRefusal, REPLY_LEN_MAX, UnsealedReply, nak, open_request,
    open_requests, seal_replies, seal_reply,
};
pub use session::{SessionKeys, WrongKeyLength};
pub use trailer::{TrailerKind, classify_trailer};
