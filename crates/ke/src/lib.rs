//! NTS key establishment (RFC 8915, section 4): its records, the listener that servers run and the
//! client that asks it, both over TLS 1.3. What a cookie holds is not known here.
//!
//! Sessions are never resumed: no ticket is sent and none is taken, so that a client costs memory
//! only while its connection is open.

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
pub use client::{Established, Exchange, KeClient, Progress, establish};
pub use error::KeError;
pub use server::{
    CertificateFacts, KeConfig, KeCounters, KeLimits, KeServer, Keeper, Prepared, check_certificate,
};
pub use trust::Trust;

/// The TCP port of NTS key establishment (RFC 8915, section 7.1).
pub const PORT: u16 = 4460;

/// What both sides name in the application-layer negotiation of TLS (RFC 8915, section 4).
const ALPN: &[u8] = b"ntske/1";

#[cfg(test)]
mod testing;
