//! NTS key establishment (RFC 8915, section 4): records and messages, listener and client over TLS
//! 1.3. Cookies are opaque bytes here.
//!
//! TLS sessions are never resumed: tickets are neither sent nor accepted, so the server stores
//! state of a client only while its connection is open.

mod algorithm;
mod certificate;
mod client;
mod error;
pub mod message;
pub mod records;
mod server;
mod trust;
pub mod validity;
mod verifier;

pub use algorithm::{AES_128_GCM_SIV, AES_SIV_CMAC_256, key_len};
pub use client::{
    NtsKeClient, NtsKeExchangeInProgress, NtsKeExchangeStatus, SessionMaterial, exchange_keys,
};
pub use error::{NtsKeError, NtsKeExchangePhase};
pub use server::{
    CookieProvider, NtsKeConfig, NtsKeCounts, NtsKeLimits, NtsKeServer, PreparedNtsKeConfig,
    ServerCertificateValidity, check_certificate,
};
pub use trust::TrustAnchors;

/// The TCP port of NTS key establishment (RFC 8915, section 7.1).
pub const PORT: u16 = 4460;

/// Application protocol in the TLS handshake (ALPN; RFC 8915, section 4).
const ALPN: &[u8] = b"ntske/1";

#[cfg(test)]
mod testing;
