//! Cost of the measurement itself: the near end's own work for an exchange, repeated many times
//! without a network.

use horolog_record::PathMeasurementCost;
use horolog_stats::DuplicateWindow;
use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_wire::path_probe::{Header, PathDatagramKind};

use super::codec::Codec;
use super::flow_stats::{ExchangeTimes, FlowStats};

/// Iterations of each operation: a few milliseconds.
const TIMES: u32 = 10_000;
/// Repetitions, the fastest of which was not disturbed.
const ROUNDS: u32 = 5;

/// Measures the cost, on the calling thread.
pub(super) fn measure() -> PathMeasurementCost {
    PathMeasurementCost {
        clock_reading_ns: fastest(|| {
            for _ in 0..TIMES {
                std::hint::black_box(MonotonicClock.now());
            }
        }),
        bookkeeping_ns: fastest(bookkeeping),
    }
}

fn fastest(work: impl Fn()) -> f64 {
    let once = |_| {
        let begun: Timestamp<Monotonic> = MonotonicClock.now();
        work();
        (MonotonicClock.now() - begun).as_ns() as f64 / f64::from(TIMES)
    };
    (0..ROUNDS).map(once).fold(f64::INFINITY, f64::min)
}

/// Runs all exchanges of a row, with a far end that answers at once.
fn bookkeeping() {
    let codec = Codec::Horolog { session: 1 };
    let Ok(window) = DuplicateWindow::new(u64::from(TIMES)) else { return };
    let mut stats = FlowStats::new(0, Span::from_ms(1_000));
    let mut bytes = [0; 64];
    for sequence in 0..TIMES {
        codec.write(&mut bytes, sequence, false, Timestamp::from_ns(0));
        window.open(u64::from(sequence));
        let sent: Timestamp<Monotonic> = MonotonicClock.now();
        Header::new(PathDatagramKind::Echo, 1, sequence).emit(std::hint::black_box(&mut bytes));
        let taken = MonotonicClock.now();
        let Some(reply) = codec.read(&bytes, Timestamp::from_ns(0)) else { return };
        let at = ExchangeTimes {
            latency: taken - sent,
            sent_ns: sent.as_ns(),
            taken_ns: taken.as_ns(),
            left_ns: None,
            received_ns: None,
        };
        std::hint::black_box(stats.take(&reply, &at, &window));
    }
}
