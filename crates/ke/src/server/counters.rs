//! Counters of connections by outcome. Each accepted connection has exactly one outcome.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Connections since the start, by outcome.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        pub struct NtsKeCounts {
            $($(#[$doc])* pub $name: u64,)+
            /// Connections open at present.
            pub open: u64,
        }

        /// Live counters of the connections, written by the threads.
        #[derive(Default, Debug)]
        pub(crate) struct NtsKeCounters {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl NtsKeCounters {
            pub(crate) fn read(&self, open: usize) -> NtsKeCounts {
                NtsKeCounts { $($name: self.$name.load(Relaxed),)+ open: open as u64 }
            }
        }
    };
}

counters! {
    /// Accepted from the system, including those refused at once.
    accepted,
    /// Refused at the limit of open connections: none was old enough to be closed.
    refused_full,
    /// Refused: too many open connections from the prefix.
    refused_concurrent,
    /// Refused: too many connections per second from the prefix.
    refused_rate,
    /// Closed at the limit of open connections to make room for a new one.
    crowded_out,
    /// Not complete within the timeout.
    timed_out,
    /// Closed: received more bytes than any handshake and request need.
    too_long,
    /// Ended by the client or the network before the response was sent.
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
    /// Failed to be accepted or registered, for lack of descriptors or memory.
    accept_failed,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
