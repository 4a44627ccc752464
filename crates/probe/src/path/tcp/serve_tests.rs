//! The far end over loopback: what it measures with us, and what it refuses.

use std::io::{Read, Write};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use horolog_record::{
    FindingCode, LivePartSummary, PathTcpResult, RunObserver, Snapshot, TcpSettings,
};

use super::super::protocol::{ConnectionFlags, ConnectionJob, HELLO_LEN, TcpHello};
use super::super::{PathTcpOptions, PathTcpRun, TcpDirections, TcpNearEndSession, TcpPathError};
use super::*;

fn far_end(limits: TcpFarEndLimits) -> RunningTcpFarEnd {
    let settings = TcpFarEndSettings { limits, hides_host_facts: false };
    serve("127.0.0.1:0".parse().unwrap(), settings).unwrap()
}

fn options(address: SocketAddr) -> PathTcpOptions {
    PathTcpOptions {
        target: address.to_string().parse().unwrap(),
        family: None,
        latency_sizes: vec![1, 5_000],
        bandwidth_sizes: vec![700],
        directions: TcpDirections { forward: true, backward: true },
        settings: TcpSettings {
            no_delay: false,
            quick_ack: false,
            cork: false,
            zero_copy: false,
            connections: 2,
            time_ns: 30_000_000,
            warm_up_ns: 5_000_000,
        },
        command: Vec::new(),
    }
}

fn run(options: PathTcpOptions) -> PathTcpResult {
    PathTcpRun::open(options).unwrap().run(&|| false, &mut ()).unwrap()
}

fn hello() -> TcpHello {
    TcpHello {
        job: ConnectionJob::Exchange,
        flags: ConnectionFlags::default(),
        request_bytes: 10,
        head_bytes: 20,
        body_bytes: 0,
        batch: 1,
        time_ms: 1_000,
        warm_up_ms: 0,
    }
}

#[test]
fn round_trips_and_transfers_are_measured_both_ways() {
    let far = far_end(TcpFarEndLimits::default());
    let result = run(options(far.address()));
    assert!(result.latency.iter().all(|row| row.round_trips > 0 && row.tcp.is_some()));
    assert_eq!(result.latency.len(), 2);
    for row in &result.bandwidth {
        assert!(row.rate > 0.0 && row.received_bytes > 0 && row.tcp.is_some(), "{row:?}");
        assert!((row.message_rate * 700.0 - row.rate).abs() < 1.0);
    }
    assert_eq!(result.bandwidth.len(), 2);
    let codes: Vec<_> = result.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [FindingCode::SharedMachine]);
    assert_eq!(result.far.unwrap().kernel, result.near.kernel);
    let counted = far.shut_down();
    let none = ["too many", "over a limit", "malformed"].iter().all(|what| counted[what] == 0);
    assert!(none && counted["served"] > 4 && counted["bytes carried"] > 5_000, "{counted:?}");
}

#[test]
fn every_switch_of_a_socket_can_be_set() {
    let far = far_end(TcpFarEndLimits::default());
    let mut all = options(far.address());
    let settings = TcpSettings {
        no_delay: true,
        quick_ack: true,
        cork: true,
        zero_copy: true,
        ..all.settings
    };
    all.settings = settings;
    let result = run(all);
    assert!(result.latency.iter().all(|row| row.round_trips > 0), "{:?}", result.findings);
    let counts = result.bandwidth[0].zero_copy.unwrap();
    // Over loopback the kernel copies.
    assert!(counts.sends > 0 && counts.copied == counts.sends, "{counts:?}");
    assert!(result.findings.iter().any(|finding| finding.code == FindingCode::ZeroCopyFallback));
}

#[test]
fn a_connection_beyond_the_limit_is_refused_with_the_limit() {
    let far = far_end(TcpFarEndLimits { connections: 1, ..TcpFarEndLimits::default() });
    let over = AtomicBool::new(false);
    let held = TcpNearEndSession::open(far.address(), &hello(), &over).unwrap();
    let refused = TcpNearEndSession::open(far.address(), &hello(), &over).map(drop).unwrap_err();
    assert!(
        matches!(refused, TcpPathError::ConnectionLimitReached { limit: 1, of_address: false, .. }),
        "{refused}"
    );
    assert!(!refused.is_usage_error());
    drop(held);
    let counted = far.shut_down();
    assert_eq!((counted["served"], counted["too many"]), (1, 1));
}

#[test]
fn what_is_beyond_the_limits_is_refused_with_the_limit() {
    let limits = TcpFarEndLimits {
        time: Duration::from_millis(500),
        message_bytes: 10,
        connections_per_address: 3,
        ..TcpFarEndLimits::default()
    };
    let far = far_end(limits);
    let over = AtomicBool::new(false);
    let refusal = |hello: TcpHello| {
        TcpNearEndSession::open(far.address(), &hello, &over).map(drop).unwrap_err().to_string()
    };
    assert!(refusal(hello()).contains("500 ms"));
    let large = TcpHello { time_ms: 100, ..hello() };
    assert!(refusal(large).contains("a message is 10 bytes"));
    let empty = TcpHello { request_bytes: 0, head_bytes: 1, ..large };
    assert!(refusal(empty).contains("'horolog path serve' of this version"));
    let counted = far.shut_down();
    assert_eq!(["served", "over a limit", "malformed"].map(|what| counted[what]), [0, 2, 1]);
}

/// What became of a run with a far end that gives little.
fn bounded(limits: TcpFarEndLimits, change: fn(&mut PathTcpOptions)) -> PathTcpResult {
    let far = far_end(limits);
    let mut options = options(far.address());
    options.settings.connections = 1;
    options.settings.warm_up_ns = 0;
    options.settings.time_ns = 5_000_000_000;
    change(&mut options);
    let begun = Instant::now();
    let result = run(options);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    result
}

fn limit_message(result: &PathTcpResult) -> &str {
    let reported = result.findings.iter().find(|finding| finding.code == FindingCode::FarEndLimit);
    &reported.unwrap_or_else(|| panic!("{:?}", result.findings)).message
}

#[test]
fn a_byte_limit_ends_a_run_with_a_finding_and_what_was_measured() {
    let few = TcpFarEndLimits { bytes: 1 << 14, ..TcpFarEndLimits::default() };
    for size in [1, 50, 5_000, 20_000] {
        let far = far_end(few);
        let mut options = options(far.address());
        options.latency_sizes = vec![size];
        options.settings.connections = 1;
        options.settings.warm_up_ns = 0;
        options.settings.time_ns = 20_000_000_000;
        let result = run(options);
        assert!(limit_message(&result).contains("a connection is 16384 bytes"));
        // Whole exchanges alone are counted.
        assert_eq!(result.latency[0].round_trips, (1 << 14) / (2 * size), "{size}");
        assert!(result.bandwidth.is_empty());
    }
    let limits = TcpFarEndLimits { bytes: 1 << 20, ..TcpFarEndLimits::default() };
    let out = bounded(limits, |options| {
        options.latency_sizes.clear();
        options.directions.backward = false;
    });
    assert!(limit_message(&out).contains("a connection is 1048576 bytes"));
    let row = &out.bandwidth[0];
    assert!(row.received_bytes > 1 << 18 && row.received_bytes <= 1 << 20, "{row:?}");
    let back = bounded(limits, |options| {
        options.latency_sizes.clear();
        options.directions.forward = false;
    });
    assert!(limit_message(&back).contains("a connection is 1048576 bytes"));
    let row = &back.bandwidth[0];
    assert!(row.received_bytes > 1 << 18 && row.received_bytes <= 1 << 20, "{row:?}");
}

#[test]
fn a_spent_hourly_limit_is_reported_during_a_run_and_at_its_start() {
    let limits = TcpFarEndLimits { bytes_per_hour: 1_000_000, ..TcpFarEndLimits::default() };
    let far = far_end(limits);
    let mut options = options(far.address());
    options.latency_sizes = vec![5_000];
    let result = run(options.clone());
    assert!(limit_message(&result).contains("1000000 bytes in an hour"));
    let refused = PathTcpRun::open(options).map(drop).unwrap_err();
    assert!(
        matches!(refused, TcpPathError::BudgetExhausted { .. }) && !refused.is_usage_error(),
        "{refused}"
    );
}

#[test]
fn a_foreign_hello_is_refused_and_an_idle_connection_delays_no_stop() {
    let far = far_end(TcpFarEndLimits::default());
    let mut stream = TcpStream::connect(far.address()).unwrap();
    stream.write_all(&[b'x'; HELLO_LEN]).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    assert_eq!(response.len(), 16);
    let idle = TcpStream::connect(far.address()).unwrap();
    let begun = Instant::now();
    drop(far);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(idle);
}

/// Observer that stores all it receives.
#[derive(Default)]
struct RecordingObserver {
    snapshots: Vec<Snapshot>,
    ended: Vec<LivePartSummary>,
}

impl RunObserver for RecordingObserver {
    fn wants_snapshots(&self) -> bool {
        true
    }

    fn snapshot(&mut self, snapshot: Snapshot) {
        self.snapshots.push(snapshot);
    }

    fn part_ended(&mut self, _: usize, row: &LivePartSummary) {
        self.ended.push(row.clone());
    }
}

#[test]
fn an_observer_receives_growing_rows_that_agree_with_the_result() {
    let far = far_end(TcpFarEndLimits::default());
    let mut long = options(far.address());
    (long.latency_sizes, long.settings.time_ns) = (vec![1], 1_200_000_000);
    let mut observer = RecordingObserver::default();
    let result = PathTcpRun::open(long).unwrap().run(&|| false, &mut observer).unwrap();
    let RecordingObserver { snapshots, ended } = observer;
    let names: Vec<_> = ended.iter().map(|row| &*row.name).collect();
    assert_eq!(snapshots[0].part.count, Some(3));
    assert_eq!(names, ["latency 1 B", "out 700 B", "back 700 B"]);
    for (index, row) in ended.iter().enumerate() {
        assert_eq!(row.index, index);
        let of_row = snapshots.iter().filter(|snapshot| snapshot.part.index == index);
        let of_row: Vec<_> = of_row.map(|snapshot| snapshot.values.part_counts).collect();
        let counted = of_row.iter().map(|counts| counts.received + counts.bytes);
        let counted: Vec<_> = counted.collect();
        let before = counted.len().checked_sub(2).map(|at| counted[at]);
        assert!(before > Some(0), "nothing was seen while it went on: {counted:?} {row:?}");
    }
    assert_eq!(ended[0].received, result.latency[0].round_trips);
    assert!(snapshots[0].values.latency_ns.is_some() && snapshots[0].values.byte_rate.is_none());
    for (row, bandwidth) in ended[1..].iter().zip(&result.bandwidth) {
        assert_eq!(row.byte_rate, Some(bandwidth.rate));
        assert_eq!(row.retransmitted, bandwidth.tcp.map(|tcp| tcp.retransmitted));
    }
}

#[test]
fn a_far_end_that_goes_away_in_the_middle_is_named() {
    let far = far_end(TcpFarEndLimits::default());
    let mut long = options(far.address());
    long.settings.time_ns = 20_000_000_000;
    let path = PathTcpRun::open(long).unwrap();
    let ends = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(far);
    });
    let begun = Instant::now();
    let result = path.run(&|| false, &mut ()).unwrap();
    ends.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(result.findings.iter().any(|finding| finding.code == FindingCode::FarEndUnreachable));
    assert_eq!((result.latency.len(), result.bandwidth.len()), (1, 0), "what there was is kept");
}

#[test]
fn a_run_that_is_ended_keeps_what_it_has() {
    let far = far_end(TcpFarEndLimits::default());
    let mut long = options(far.address());
    long.settings.time_ns = 20_000_000_000;
    let begun = Instant::now();
    let is_over = || begun.elapsed() > Duration::from_millis(100);
    let result = PathTcpRun::open(long).unwrap().run(&is_over, &mut ()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(result.latency[0].round_trips > 0, "{result:?}");
    let codes: Vec<_> = result.findings.iter().map(|finding| finding.code).collect();
    assert!(
        codes.contains(&FindingCode::Interrupted)
            && !codes.contains(&FindingCode::FarEndUnreachable)
    );
}

#[test]
fn options_that_cannot_be_are_refused_before_anything_is_sent() {
    let closed = "127.0.0.1:1".parse().unwrap();
    let wrong = |change: fn(&mut PathTcpOptions)| {
        let mut options = options(closed);
        change(&mut options);
        PathTcpRun::open(options).map(drop).unwrap_err()
    };
    for (error, expected) in [
        (wrong(|options| options.settings.connections = 0), "from 1 to 64, not 0"),
        (wrong(|options| options.latency_sizes = vec![0]), "from 1 to"),
        (wrong(|options| options.latency_sizes = vec![1 << 40]), "from 1 to"),
        (wrong(|options| options.settings.time_ns = 1), "from 10 ms to 60 s"),
    ] {
        assert!(error.is_usage_error() && error.to_string().contains(expected), "{error}");
    }
    let error = wrong(|_| ());
    assert!(!error.is_usage_error() && error.to_string().contains("no program listens"), "{error}");
}
