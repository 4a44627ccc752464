//! Message counts of a PTP port.

use horolog_wire::ptp::MessageType;

use super::PtpRefusal;

/// Messages received and sent, by type, and refusals by reason.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PtpPortCounts {
    received: [u64; 16],
    sent: [u64; 16],
    refused: [u64; PtpRefusal::COUNT],
}

impl PtpPortCounts {
    /// Returns the number of received messages of this type, whether accepted or not.
    #[must_use]
    pub const fn received(&self, kind: MessageType) -> u64 {
        self.received[kind as usize]
    }

    /// Returns the number of sent messages of this type.
    #[must_use]
    pub const fn sent(&self, kind: MessageType) -> u64 {
        self.sent[kind as usize]
    }

    /// Returns the number of messages, and of single requests in messages, refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: PtpRefusal) -> u64 {
        self.refused[reason as usize]
    }

    /// Counts a received message; the low four bits of `bits` are its type.
    pub(super) const fn count_received(&mut self, bits: u8) {
        self.received[(bits & 0xf) as usize] += 1;
    }

    /// Counts a sent message; the low four bits of `bits` are its type.
    pub(super) const fn count_sent(&mut self, bits: u8) {
        self.sent[(bits & 0xf) as usize] += 1;
    }

    /// Counts a refusal.
    pub(super) const fn count_refused(&mut self, reason: PtpRefusal) {
        self.refused[reason as usize] += 1;
    }
}
