//! Instants of packets with who took them. Of several for the same packet the best is kept: that of
//! the card, then the kernel's, then this program's own. Pure.

use horolog_record::{StampCounts, StampKind};
use horolog_time::{Span, Timestamp, Utc};

/// When a packet left or came, by the system's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// When.
    pub at: Timestamp<Utc>,
    /// By whom.
    pub kind: StampKind,
    /// What converting it from another clock may have added.
    pub conversion: Span,
}

impl Stamp {
    /// This program's own reading of the clock.
    #[must_use]
    pub const fn user(at: Timestamp<Utc>) -> Self {
        Self { at, kind: StampKind::User, conversion: Span::ZERO }
    }

    /// The kernel's.
    #[must_use]
    pub const fn kernel(at: Timestamp<Utc>) -> Self {
        Self { at, kind: StampKind::Kernel, conversion: Span::ZERO }
    }

    /// The card's, by its own clock, converted.
    #[must_use]
    pub const fn hardware(at: Timestamp<Utc>, conversion: Span) -> Self {
        Self { at, kind: StampKind::Hardware, conversion }
    }

    /// The better one of this and another of the same packet.
    #[must_use]
    pub fn or_better(self, other: Option<Self>) -> Self {
        other.filter(|other| rank(other.kind) > rank(self.kind)).unwrap_or(self)
    }
}

/// How near to the wire a timestamp of this kind is taken.
pub(crate) const fn rank(kind: StampKind) -> u8 {
    match kind {
        StampKind::User => 0,
        StampKind::Kernel => 1,
        StampKind::Hardware => 2,
    }
}

/// Counts one more of a kind.
pub(crate) fn count(counts: &mut StampCounts, kind: StampKind) {
    *match kind {
        StampKind::Hardware => &mut counts.hardware,
        StampKind::Kernel => &mut counts.kernel,
        StampKind::User => &mut counts.user,
    } += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_to_the_wire_the_better() {
        let at = |ns| Timestamp::from_ns(ns);
        let (user, kernel) = (Stamp::user(at(1)), Stamp::kernel(at(2)));
        let hardware = Stamp::hardware(at(3), Span::from_ns(50));
        assert_eq!(user.or_better(None), user);
        assert_eq!(user.or_better(Some(kernel)), kernel);
        assert_eq!(kernel.or_better(Some(user)), kernel);
        assert_eq!(user.or_better(Some(kernel)).or_better(Some(hardware)), hardware);
        assert_eq!(hardware.or_better(Some(kernel)), hardware);
        let mut counts = StampCounts::default();
        for one in [user, kernel, kernel] {
            count(&mut counts, one.kind);
        }
        assert_eq!(counts, StampCounts { hardware: 0, kernel: 2, user: 1 });
    }
}
