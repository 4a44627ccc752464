//! Warnings to the operator about leap seconds, one line each.

use std::fmt;

use horolog_time::leap::{Date, LeapDisagreement, LeapKind, LeapSecond};
use horolog_time::{Span, Timestamp, Utc};

/// Warning about leap seconds; its text states what is wrong, and what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeapNotice {
    /// List that expires within 28 days, with its expiry.
    ExpiresSoon(Timestamp<Utc>),
    /// Expired list, with its expiry.
    Expired(Timestamp<Utc>),
    /// Contradiction between the list and the kernel.
    Disagreement(LeapDisagreement),
    /// System clock that did not step at the leap second.
    DidNotStep,
}

fn participle(kind: LeapKind) -> &'static str {
    match kind {
        LeapKind::Insert => "inserted",
        LeapKind::Delete => "deleted",
    }
}

/// Describes a leap second: insertion or deletion, and the day at whose end it occurs.
pub(crate) fn describe_leap(leap: &LeapSecond) -> String {
    let what = match leap.kind {
        LeapKind::Insert => "insert",
        LeapKind::Delete => "delete",
    };
    format!("{what} {}", leap_day(leap))
}

/// Returns the day at whose end the leap second occurs.
fn leap_day(leap: &LeapSecond) -> Date {
    Date(leap.midnight - Span::from_ns(1))
}

impl fmt::Display for LeapNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExpiresSoon(at) => write!(
                f,
                "the leap-seconds file expires on {}; install a new one and reload",
                Date(*at)
            ),
            Self::Expired(at) => write!(
                f,
                "the leap-seconds file expired on {}: only the kernel announces leap seconds, and \
                 a server that starts with it has no TAI minus UTC from it, so that PTP has no TAI \
                 (class 13 at best, no offset to UTC) unless a receiver or the kernel provides it; \
                 install a new one and reload, or use --tai-offset",
                Date(*at)
            ),
            Self::Disagreement(LeapDisagreement::KernelOnly(leap)) => write!(
                f,
                "the kernel expects a leap second to be {} on {}, which is not in the leap-seconds \
                 file; it is not announced; check where the time daemon has it from",
                participle(leap.kind),
                leap_day(leap)
            ),
            Self::Disagreement(LeapDisagreement::ListOnly(leap)) => write!(
                f,
                "the leap-seconds file contains a leap second to be {} on {}, which the kernel \
                 does not expect; it is announced and served; if the daemon slews the clock \
                 instead, use --leap-system slews",
                participle(leap.kind),
                leap_day(leap)
            ),
            Self::Disagreement(LeapDisagreement::OppositeKind(leap)) => write!(
                f,
                "the leap-seconds file contains a leap second to be {} on {}, and the kernel \
                 expects the opposite; the file is used; check where the time daemon has it from",
                participle(leap.kind),
                leap_day(leap)
            ),
            Self::DidNotStep => write!(
                f,
                "the system clock did not step at the leap second, so its reading is unknown; \
                 replies report unsynchronised for an hour; use --leap-system slews for a daemon \
                 that slews the clock, --leap-system smears for one that smears it"
            ),
        }
    }
}
