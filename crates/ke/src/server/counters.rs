//! Connections by outcome. Each accepted one is counted under exactly one name.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Connections since the start, by outcome.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        pub struct KeCounts {
            $($(#[$doc])* pub $name: u64,)+
            /// Connections open at present.
            pub open: u64,
        }

        /// Live counters of the connections, written by the threads.
        #[derive(Default, Debug)]
        pub(crate) struct KeCounters {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl KeCounters {
            pub(crate) fn read(&self, open: usize) -> KeCounts {
                KeCounts { $($name: self.$name.load(Relaxed),)+ open: open as u64 }
            }
        }
    };
}

counters! {
    /// Accepted from the system, including those refused at once.
    accepted,
    /// Refused: all connections were in use, none of them old enough.
    refused_full,
    /// Refused: too many simultaneous connections of its prefix.
    refused_concurrent,
    /// Refused: too many connections per second of its prefix.
    refused_rate,
    /// Closed in favour of a new one, because all connections were in use and it was old.
    crowded_out,
    /// Not complete within the timeout.
    timed_out,
    /// Sent more bytes than any handshake and request need.
    too_long,
    /// Ended by the client, or by the network, before the response.
    broken,
    /// TLS failed: no common version or cipher, an alert, or no TLS at all.
    handshake_failed,
    /// TLS without the protocol `ntske/1`.
    not_ntske,
    /// Answered with an error: not a request, or a request with an unknown critical record.
    bad_request,
    /// Answered without a common protocol or algorithm.
    nothing_in_common,
    /// Answered with an internal error: no cookies were available.
    internal_error,
    /// Answered with cookies.
    established,
    /// Not accepted from the system, for lack of descriptors or memory. Not in `accepted`.
    accept_failed,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
