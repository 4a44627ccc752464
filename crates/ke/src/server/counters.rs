//! What became of the connections. Each accepted one ends under exactly one name.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Connections since the start, by what became of them.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        pub struct KeCounters {
            $($(#[$doc])* pub $name: u64,)+
            /// Connections that are open at this moment.
            pub open: u64,
        }

        /// The same, as threads count them.
        #[derive(Default, Debug)]
        pub(crate) struct Tally {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl Tally {
            pub(crate) fn read(&self, open: usize) -> KeCounters {
                KeCounters { $($name: self.$name.load(Relaxed),)+ open: open as u64 }
            }
        }
    };
}

counters! {
    /// Taken from the system, those that are refused at once included.
    accepted,
    /// Refused: all connections were taken, by others no older.
    refused_full,
    /// Refused: too many of its prefix at a time.
    refused_concurrent,
    /// Refused: too many of its prefix a second.
    refused_rate,
    /// Closed for a new one, because all connections were taken and it was old.
    crowded_out,
    /// Not done in time.
    timed_out,
    /// Sent more bytes than any handshake and request take.
    too_long,
    /// Ended by the client, or by the network, before it was answered.
    broken,
    /// TLS failed: no common version or cipher, an alert, or no TLS at all.
    handshake_failed,
    /// TLS without the protocol `ntske/1`.
    not_ntske,
    /// Answered with an error: not a request, or one with an unknown critical record.
    bad_request,
    /// Answered that there is no common protocol or algorithm.
    nothing_in_common,
    /// Answered with an internal error: there were no cookies.
    internal_error,
    /// Answered with cookies.
    established,
    /// Could not be taken from the system, for want of descriptors or memory. Not in `accepted`.
    accept_failed,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
