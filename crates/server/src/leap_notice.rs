//! What the operator is warned of about leap seconds, in one line each. Nothing is printed here.

use std::fmt;

use horolog_time::leap::{Date, Discord, Leap, LeapKind};
use horolog_time::{Span, Timestamp, Utc};

/// A warning; its text says what happened, to what, and what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeapNotice {
    /// The list expires within 28 days, at this instant.
    ExpiresSoon(Timestamp<Utc>),
    /// The list expired at this instant.
    Expired(Timestamp<Utc>),
    /// List and kernel disagree.
    Discord(Discord),
    /// The system clock did not step at the leap.
    DidNotStep,
}

fn name(kind: LeapKind) -> &'static str {
    match kind {
        LeapKind::Insert => "inserted",
        LeapKind::Delete => "deleted",
    }
}

/// A leap second that is to come in words: what is done, and at the end of which day.
pub(crate) fn pending(leap: &Leap) -> String {
    let what = match leap.kind {
        LeapKind::Insert => "insert",
        LeapKind::Delete => "delete",
    };
    format!("{what} {}", day(leap))
}

/// The day whose last minute a leap changes.
fn day(leap: &Leap) -> Date {
    Date(leap.midnight - Span::from_ns(1))
}

impl fmt::Display for LeapNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExpiresSoon(at) => write!(
                f,
                "the leap-seconds file expires on {}; get a new one and reload",
                Date(*at)
            ),
            Self::Expired(at) => write!(
                f,
                "the leap-seconds file expired on {}, so it announces no leap second any more, \
                 only the kernel does, and a server that starts with it has no TAI minus UTC from \
                 it: PTP tells no TAI then (class 13 at best, no offset to UTC), unless a receiver \
                 or the kernel does; get a new one and reload, or give --tai-offset",
                Date(*at)
            ),
            Self::Discord(Discord::KernelOnly(leap)) => write!(
                f,
                "the kernel was told of a leap second to be {} on {}, which the \
                 leap-seconds file does not have; it is not announced; see where the time daemon \
                 has it from",
                name(leap.kind),
                day(leap)
            ),
            Self::Discord(Discord::ListOnly(leap)) => write!(
                f,
                "the leap-seconds file has a leap second to be {} on {}, of which the \
                 kernel was not told; it is announced and served; if the daemon slews the clock \
                 instead, use --leap-system slews",
                name(leap.kind),
                day(leap)
            ),
            Self::Discord(Discord::Kind(leap)) => write!(
                f,
                "by the leap-seconds file a leap second is {} on {}, and the kernel was \
                 told the opposite; the file is followed; see where the time daemon has it from",
                name(leap.kind),
                day(leap)
            ),
            Self::DidNotStep => write!(
                f,
                "the system clock did not step at the leap second, so nobody knows what \
                 it shows; replies say unsynchronised for an hour; a daemon that slews the clock \
                 needs --leap-system slews, one that smears it --leap-system smears"
            ),
        }
    }
}
