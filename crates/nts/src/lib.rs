//! Cryptography of NTP packets: Network Time Security (RFC 8915, section 5) with its AEAD
//! algorithms (RFC 5297, RFC 8452), cookies and their rotating keys, and symmetric-key message
//! authentication codes (RFC 5905, RFC 8573). Files, sockets and clocks are left to the caller.

mod aead;
mod client;
mod cookie;
mod imported_session;
pub mod mac;
mod nonce;
mod secret;
mod server;
mod session;

pub use aead::AeadAlgorithm;
pub use aead::siv::{BATCH, BatchKeyBuffer};
pub use client::{
    ClientSession, DecryptedReplyFields, ReplyError, RequestTemplate, UNIQUE_ID_LEN, examine_reply,
    open_reply, request_len, seal_request,
};
pub use cookie::{
    COOKIE_LEN_MAX, CookieKeys, PAST_PERIODS_DEFAULT, PAST_PERIODS_MAX, ROTATION_DEFAULT,
    cookie_len,
};
pub use imported_session::{ImportedSession, ImportedSessionError};
pub use nonce::NonceStream;
pub use secret::{CookieMasterSecret, CookieMasterSecretError};
pub use server::{
    AuthenticRequest, COOKIES_MAX, NtsRefusal, REPLY_LEN_MAX, UnsealedReply, open_request,
    open_requests, seal_replies, seal_reply, write_nak,
};
pub use session::{SessionKeys, WrongKeyLength};
