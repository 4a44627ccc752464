//! Cost of the measurement itself: the near end's own work per exchange, measured without a
//! network.

use horolog_record::PathMeasurementCost;
use horolog_stats::DuplicateWindow;
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use horolog_wire::path_probe::{Header, PathDatagramKind};

use super::codec::ProbeCodec;
use super::flow_stats::{FlowStats, NearEndExchangeTimes};

/// Iterations of each operation, a few ms in total.
const ITERATIONS: u32 = 10_000;
/// Repetitions, of which the fastest is used.
const REPETITIONS: u32 = 5;

/// Measures the cost in the calling thread.
pub(super) fn measure_cost() -> PathMeasurementCost {
    PathMeasurementCost {
        clock_reading_ns: fastest_ns(|| {
            for _ in 0..ITERATIONS {
                std::hint::black_box(ClockMonotonic.now());
            }
        }),
        bookkeeping_ns: fastest_ns(process_exchanges),
    }
}

fn fastest_ns(work: impl Fn()) -> f64 {
    let once = |_| {
        let begun: Timestamp<Monotonic> = ClockMonotonic.now();
        work();
        (ClockMonotonic.now() - begun).as_ns() as f64 / f64::from(ITERATIONS)
    };
    (0..REPETITIONS).map(once).fold(f64::INFINITY, f64::min)
}

/// Processes exchanges with replies that are made in place.
fn process_exchanges() {
    let codec = ProbeCodec::Horolog { session: 1 };
    let Ok(window) = DuplicateWindow::new(u64::from(ITERATIONS)) else { return };
    let mut stats = FlowStats::new(0, Span::from_ms(1_000));
    let mut bytes = [0; 64];
    for sequence in 0..ITERATIONS {
        codec.write_request(&mut bytes, sequence, false, Timestamp::from_ns(0));
        window.open(u64::from(sequence));
        let sent: Timestamp<Monotonic> = ClockMonotonic.now();
        Header::new(PathDatagramKind::Echo, 1, sequence).emit(std::hint::black_box(&mut bytes));
        let taken = ClockMonotonic.now();
        let Some(reply) = codec.parse_reply(&bytes, Timestamp::from_ns(0)) else { return };
        let at = NearEndExchangeTimes {
            latency: taken - sent,
            user_sent_ns: sent.as_ns(),
            user_received_ns: taken.as_ns(),
            kernel_sent_ns: None,
            kernel_received_ns: None,
        };
        std::hint::black_box(stats.record_reply(&reply, &at, &window));
    }
}
