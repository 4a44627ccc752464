//! What a port counts.

use horolog_wire::ptp::MessageType;

use super::Refusal;

/// How many messages of each type were received and sent, and how many were refused, by reason.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    received: [u64; 16],
    sent: [u64; 16],
    refused: [u64; Refusal::COUNT],
}

impl Counts {
    /// Messages of this type that came, whatever became of them.
    #[must_use]
    pub const fn received(&self, kind: MessageType) -> u64 {
        self.received[kind as usize]
    }

    /// Messages of this type that were sent.
    #[must_use]
    pub const fn sent(&self, kind: MessageType) -> u64 {
        self.sent[kind as usize]
    }

    /// Messages, and requests in them, that were refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }

    /// Counts a message whose type has these low four bits.
    pub(super) const fn count_received(&mut self, bits: u8) {
        self.received[(bits & 0xf) as usize] += 1;
    }

    /// Counts a message whose type has these low four bits.
    pub(super) const fn count_sent(&mut self, bits: u8) {
        self.sent[(bits & 0xf) as usize] += 1;
    }

    /// Counts a refusal.
    pub(super) const fn count_refused(&mut self, reason: Refusal) {
        self.refused[reason as usize] += 1;
    }
}
