//! Costs of the golden results, which hold every figure that a result can have.

use horolog_record::{FindingCode, HostClockResult, HostInterruptResult};
use serde::de::DeserializeOwned;

use super::*;

fn golden<T: DeserializeOwned>(name: &str) -> T {
    let directory = concat!(env!("HOROLOG_REPOSITORY"), "crates/record/samples");
    let text = std::fs::read_to_string(format!("{directory}/{name}.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn source(measured: CostSourceResult) -> CostInput {
    CostInput { name: "file".to_owned(), measured }
}

fn shown(costs: &HostCosts, kind: Kind) -> Vec<(Option<usize>, u64, Option<u64>)> {
    let of_kind = costs.list().iter().filter(|cost| cost.kind == kind);
    of_kind.map(|cost| (cost.core, cost.ns, cost.every_ns)).collect()
}

fn gaps() -> HostInterruptResult {
    let mut result: HostInterruptResult = golden("host_interrupt");
    result.os_noise.truncate(1);
    result.os_noise[0].gap_ns.as_mut().unwrap().count = 90;
    result
}

#[test]
fn a_switch_is_the_largest_repetition_and_a_release_the_requested_quantile() {
    let sources = [
        source(CostSourceResult::Switch(Box::new(golden("host_switch")))),
        source(CostSourceResult::Timer(Box::new(golden("host_timer")))),
    ];
    let max = extract_costs(&sources, Worst::Max);
    assert_eq!(shown(&max, Kind::Switch), [(None, 1_240, None)]);
    assert_eq!(shown(&max, Kind::Release), [(Some(0), 119_698, None), (Some(1), 1_538_986, None)]);
    assert_eq!(
        shown(&extract_costs(&sources, Worst::P99_9), Kind::Release),
        [(Some(0), 45_055, None), (Some(1), 581_631, None)]
    );
    let mut turns: HostSwitchResult = golden("host_switch");
    turns.steps.clear();
    let of_turns = extract_costs(&[source(CostSourceResult::Switch(Box::new(turns)))], Worst::Max);
    assert_eq!(shown(&of_turns, Kind::Switch), [(None, 3_800, None)]);
}

#[test]
fn gaps_are_counted_from_the_longest_on() {
    let sources = [source(CostSourceResult::Interrupt(Box::new(gaps())))];
    let all = extract_costs(&sources, Worst::Max);
    // 40 of 90 gaps are of interrupts, none longer than 9 us: they are taken for the longest 40.
    let every = |count: u64| Some(1_000_000_000 / count);
    let expected = [
        (Some(0), 5_759, every(28)),
        (Some(0), 9_000, every(9)),
        (Some(0), 9_000, every(1)),
        (Some(0), 9_000, every(1)),
        (Some(0), 9_000, every(1)),
    ];
    assert_eq!(shown(&all, Kind::Interrupt), expected);
    assert_eq!(shown(&all, Kind::Scheduler), [], "how often it ticks is not known");
    assert_eq!(shown(&all, Kind::Threads).last(), Some(&(Some(0), 2_000_000, every(1))));
    let fewer = extract_costs(&sources, Worst::P99);
    assert_eq!(shown(&fewer, Kind::Interrupt), expected[..2]);
}

#[test]
fn ticks_are_as_long_as_the_median_gap_and_not_counted_twice() {
    let clock: HostClockResult = golden("host_clock");
    let mut result = gaps();
    result.os_noise[0].by_others =
        OsNoiseGapSummary { gaps: 600, total_ns: 6_000_000, max_ns: 9_000 };
    result.os_noise[0].gap_ns.as_mut().unwrap().count = 600;
    let mut sources = [
        source(CostSourceResult::Clock(Box::new(clock))),
        source(CostSourceResult::Interrupt(Box::new(result))),
    ];
    let all = extract_costs(&sources, Worst::Max);
    assert_eq!(shown(&all, Kind::Scheduler), [(Some(0), 4_831, Some(4_000_000))]);
    // Of 300 short gaps less 2 that were taken for longer ones, 250 are ticks.
    let short = shown(&all, Kind::Interrupt)[0];
    assert_eq!((short.1, short.2), (4_831, Some(1_000_000_000 / 48)));
    let CostSourceResult::Interrupt(result) = &mut sources[1].measured else { panic!() };
    result.os_noise[0].by_others = OsNoiseGapSummary::default();
    let none = extract_costs(&sources, Worst::Max);
    assert_eq!(shown(&none, Kind::Scheduler), [(Some(0), 2_000, Some(4_000_000))]);
    assert_eq!(shown(&none, Kind::Interrupt), []);
}

#[test]
fn messages_have_the_whole_round_trip_and_half_of_it() {
    let all =
        extract_costs(&[source(CostSourceResult::Path(Box::new(golden("path_udp"))))], Worst::Max);
    let message = &all.list()[0];
    assert_eq!((message.bytes, message.ns, message.half_ns), (Some(64), 824_627, Some(412_313)));
    assert!(message.statistic.contains("round trip") && message.source == "file");
}

#[test]
fn a_whole_host_is_its_parts() {
    let parts = CostSourceResult::from_host_all(golden("host_all"));
    let sources: Vec<CostInput> = parts.into_iter().map(source).collect();
    let all = extract_costs(&sources, Worst::Max);
    for kind in [Kind::Switch, Kind::Release, Kind::Scheduler, Kind::Interrupt] {
        assert!(all.has(kind), "{kind:?}");
    }
    assert!(real_time_share(&sources).is_some_and(|share| (share - 0.95).abs() < 1e-9));
}

#[test]
fn uncertain_costs_yield_findings() {
    let sources = [
        source(CostSourceResult::Timer(Box::new(golden("host_timer")))),
        source(CostSourceResult::Path(Box::new(golden("path_udp")))),
    ];
    let here = sources[0].measured.host().clone();
    let codes = |here: &Host, worst| -> Vec<FindingCode> {
        source_findings(&sources, here, worst).iter().map(|finding| finding.code).collect()
    };
    let uncertain = FindingCode::CostUncertain;
    assert_eq!(codes(&here, Worst::P50), [uncertain, uncertain, uncertain, uncertain]);
    assert!(codes(&here, Worst::P99_99).contains(&FindingCode::FewSamples));
    let elsewhere = Host { cores: 64, ..here };
    let findings = source_findings(&sources, &elsewhere, Worst::P50);
    assert_eq!(
        findings.iter().filter(|one| one.code == FindingCode::CostFromOtherMachine).count(),
        2
    );
    assert!(
        findings[0].message.ends_with("another host: cores 2, not 64."),
        "{}",
        findings[0].message
    );
}
