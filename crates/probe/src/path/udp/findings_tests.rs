//! What is said of losses, of lateness and of pollers without a processor.

use horolog_record::{
    Host, PATH_UDP_SCHEMA, PathDirectionCounts, PathHostLosses, PathLoad, PathMeasurementCost,
    PathRequestCounts, PathTarget,
};
use horolog_stats::Histogram;

use super::*;

fn distribution(times_ns: &[u64]) -> Option<Distribution> {
    let mut histogram = Histogram::new();
    for ns in times_ns {
        histogram.record(*ns);
    }
    Distribution::from_histogram(&histogram)
}

/// A row of 2,000 requests, of which so many were lost there and back.
fn row(there: u64, back: u64, late: u64) -> PathUdpRow {
    let lost = there + back + late;
    PathUdpRow {
        length: 64,
        fragments: 1,
        duration_s: 1.0,
        intended_rate: Some(2_000.0),
        achieved_rate: 2_000.0,
        load: PathLoad::default(),
        counts: PathRequestCounts {
            sent: 2_000,
            received: 2_000 - lost,
            lost,
            late,
            ..PathRequestCounts::default()
        },
        forward: Some(PathDirectionCounts { lost: there, ..PathDirectionCounts::default() }),
        backward: Some(PathDirectionCounts { lost: back, ..PathDirectionCounts::default() }),
        host_losses: Some(PathHostLosses {
            far_limited: Some(0),
            far_dropped: Some(0),
            near_dropped: Some(0),
        }),
        rtt_ns: None,
        delay_ns: None,
        send_late_ns: None,
        forward_ns: None,
        backward_ns: None,
        far_ns: None,
        host_send_ns: None,
        host_receive_ns: None,
        wire_ns: None,
        dscp_forward: None,
        dscp_backward: None,
        ended: None,
    }
}

fn result(row: PathUdpRow) -> PathUdpResult {
    PathUdpResult {
        schema: PATH_UDP_SCHEMA.to_owned(),
        started: String::new(),
        command: Vec::new(),
        host: Host { cores: 2, ..Host::read() },
        target: PathTarget {
            name: String::new(),
            address: [192, 0, 2, 1].into(),
            port: 1,
            mtu: 1_500,
            same_clock: false,
            clock_error_ns: None,
        },
        protocol: PathProtocol::Horolog,
        mode: PathSendMode::OpenLoop,
        flows: 1,
        busy_polling: false,
        timestamps: TimestampSource::User,
        dscp: 0,
        warm_up: 0,
        reply_timeout_ns: 1,
        load_length: 64,
        load_broadcast: false,
        cost: PathMeasurementCost::default(),
        rows: vec![row],
        limits: Vec::new(),
        findings: Vec::new(),
    }
}

fn texts_of(result: &PathUdpResult, code: FindingCode) -> Vec<(String, String)> {
    let all = all_findings(result, &UdpRunContext::default());
    let of_code = all.into_iter().filter(|finding| finding.code == code);
    of_code.map(|finding| (finding.message, finding.advice)).collect()
}

fn lost(row: PathUdpRow) -> (String, String) {
    texts_of(&result(row), FindingCode::PathLoss).remove(0)
}

#[test]
fn losses_of_the_hosts_are_not_laid_on_the_path() {
    let (message, advice) = lost(row(40, 0, 0));
    assert!(!message.contains("hosts lost") && advice.contains("counters"), "{message}");
    let mut limited = row(40, 10, 0);
    limited.host_losses = Some(PathHostLosses {
        far_limited: Some(30),
        far_dropped: Some(500),
        near_dropped: Some(3),
    });
    let at = limited.loss_locations().unwrap();
    assert_eq!((at.far_limit, at.far_socket, at.path_forward), (30, 10, 0));
    assert_eq!((at.near_socket, at.path_backward), (3, 7));
    let (message, advice) = lost(limited.clone());
    assert!(
        message.contains("lost 43 of them: 30 to the far end's rate limit, up to 10"),
        "{message}"
    );
    assert!(advice.contains("--max-rate"), "{advice}");
    limited.host_losses =
        Some(PathHostLosses { far_limited: Some(0), far_dropped: Some(39), near_dropped: None });
    assert!(lost(limited).1.starts_with("The far end reads too slowly"));
}

#[test]
fn late_replies_need_a_longer_timeout() {
    let (message, advice) = lost(row(0, 0, 25));
    assert_eq!(message, "25 of 2000 requests received late replies (1.250%).");
    assert_eq!(advice, "Use a longer --timeout.");
    let (message, advice) = lost(row(3, 0, 9));
    assert!(message.contains("replies to 9 of them were late"), "{message}");
    assert_eq!(advice, "Use a longer --timeout.");
}

#[test]
fn lateness_is_held_against_the_same_percentile() {
    let with = |late_ns: u64, delay_ns: &[u64]| {
        let (send_late_ns, delay_ns) = (distribution(&[late_ns]), distribution(delay_ns));
        texts_of(
            &result(PathUdpRow { send_late_ns, delay_ns, ..row(0, 0, 0) }),
            FindingCode::RequestsLate,
        )
    };
    let slow = [[50_000; 90].as_slice(), &[94_900_000; 10]].concat();
    assert!(with(13_000_000, &slow).is_empty(), "the path's own are longer");
    let texts = with(130_000_000, &slow);
    assert!(texts[0].0.contains("at least 130 ms late"), "{texts:?}");
    let queued = [[60_000; 1].as_slice(), &[86_000_000; 90]].concat();
    let texts = with(1_000, &queued);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].0.starts_with("T has a median of 86."), "{texts:?}");
    assert!(with(1_000, &[86_000_000; 90]).is_empty(), "a path may be long");
}

#[test]
fn pollers_need_a_processor_each() {
    let mut crowd = PathUdpResult { flows: 4, busy_polling: true, ..result(row(0, 0, 0)) };
    crowd.rows[0].achieved_rate = 1_000.0;
    let texts = texts_of(&crowd, FindingCode::GeneratorLimit);
    assert!(texts[0].0.starts_with("8 threads busy-poll"), "{texts:?}");
    assert_eq!(texts_of(&crowd, FindingCode::GeneratorBehind)[0].1, "Lower the rate.");
    crowd.flows = 1;
    assert!(texts_of(&crowd, FindingCode::GeneratorLimit).is_empty());
    crowd.busy_polling = false;
    assert!(texts_of(&crowd, FindingCode::GeneratorBehind)[0].1.contains("more flows"));
}

#[test]
fn an_end_in_the_warm_up_is_reported() {
    let message_of = |row| {
        let circumstances = UdpRunContext { interrupted: true, ..UdpRunContext::default() };
        let findings = all_findings(&result(row), &circumstances);
        let one = findings.into_iter().find(|finding| finding.code == FindingCode::Interrupted);
        one.unwrap().message
    };
    let ended = |sent| {
        let row = row(0, 0, 0);
        let counts = horolog_record::PathRequestCounts { sent, ..row.counts };
        PathUdpRow { counts, ended: Some(UdpRowEndReason::Interrupted), ..row }
    };
    assert!(message_of(ended(0)).contains("in the warm-up of a row"));
    assert!(message_of(ended(1)).contains("The run was interrupted."));
}
