//! Numbers and key lengths of AEAD algorithms, and the export of their keys from a TLS session (RFC
//! 8915, section 5.1).

use rustls::ConnectionCommon;
use zeroize::Zeroizing;

/// `AEAD_AES_SIV_CMAC_256`, mandatory for every NTS implementation (RFC 8915, section 5.1).
pub const AES_SIV_CMAC_256: u16 = 15;
/// `AEAD_AES_128_GCM_SIV` (RFC 8452).
pub const AES_128_GCM_SIV: u16 = 30;

const EXPORTER_LABEL: &[u8] = b"EXPORTER-network-time-security";
const C2S_DIRECTION: u8 = 0;
const S2C_DIRECTION: u8 = 1;

/// Returns the key length of an algorithm in IANA's AEAD registry, in bytes; `None` unless it is
/// one of the three AES-SIV-CMAC (RFC 5297) or two AES-GCM-SIV algorithms (RFC 8452).
#[must_use]
pub const fn key_len(algorithm: u16) -> Option<usize> {
    match algorithm {
        AES_SIV_CMAC_256 => Some(32),
        16 => Some(48),
        17 => Some(64),
        AES_128_GCM_SIV => Some(16),
        31 => Some(32),
        _ => None,
    }
}

/// AEAD algorithm of an exchange, and its number in the TLS exporter's context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NegotiatedAlgorithm {
    /// Number of the AEAD algorithm of the keys.
    pub algorithm: u16,
    /// Number of the algorithm in the exporter's context. Equal to `algorithm`, except with chrony
    /// 4.4 to 4.6, which uses [`AES_SIV_CMAC_256`] there for any negotiated algorithm.
    pub context: u16,
}

/// Keys of an NTS session.
pub(crate) struct NtsKeys {
    /// From the client to the server.
    pub(crate) c2s: Zeroizing<Vec<u8>>,
    /// From the server to the client.
    pub(crate) s2c: Zeroizing<Vec<u8>>,
}

impl NtsKeys {
    /// Exports the keys from a session whose handshake is complete.
    pub(crate) fn export<Side>(
        session: &ConnectionCommon<Side>,
        negotiated: NegotiatedAlgorithm,
    ) -> Result<Self, rustls::Error> {
        let length = key_len(negotiated.algorithm)
            .ok_or_else(|| rustls::Error::General("unknown key length".into()))?;
        let key = |direction| {
            let [high, low] = negotiated.context.to_be_bytes();
            // The first two bytes are the protocol ID: 0 is NTPv4 (RFC 8915, section 4.2).
            let context = [0, 0, high, low, direction];
            let mut key = Zeroizing::new(vec![0; length]);
            session.export_keying_material(key.as_mut_slice(), EXPORTER_LABEL, Some(&context))?;
            Ok::<_, rustls::Error>(key)
        };
        Ok(Self { c2s: key(C2S_DIRECTION)?, s2c: key(S2C_DIRECTION)? })
    }
}
