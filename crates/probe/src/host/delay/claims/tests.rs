//! Claims held against evidence of a machine of today, of an old one, and of none.

use std::time::Duration;

use horolog_record::{
    DelayMeasurement, DelaySetting, HOST_DELAY_SCHEMA, Host, InterruptedDelay,
    InterruptedSleepStrategy, TickFacts,
};
use horolog_stats::Histogram;
use horolog_sys::alarm::PendingAlarmEffect;

use super::super::evidence::{FailingSleepLoopResult, LongUsleepResult};
use super::*;

const MS: u64 = 1_000_000;

/// A machine where every overshoot is the same.
fn result(overshoot_ns: u64) -> HostDelayResult {
    let delays = [1_000, 100_000, 10 * MS, 100 * MS, 1_000 * MS];
    let all = WaitFunction::ALL.iter().flat_map(|kind| delays.map(|delay| (*kind, delay)));
    let cell = |(function, requested_ns): (WaitFunction, u64)| {
        let mut overshoots = Histogram::new();
        overshoots.record(overshoot_ns);
        DelayMeasurement {
            function,
            setting: 0,
            requested_ns,
            early: 0,
            early_max_ns: 0,
            overshoot_ns: Distribution::from_histogram(&overshoots),
            processor_ns: None,
            error: None,
        }
    };
    HostDelayResult {
        schema: HOST_DELAY_SCHEMA.to_owned(),
        started: String::new(),
        command: Vec::new(),
        host: Host::default(),
        tick: TickFacts {
            hz: Some(250),
            tick_ns: Some(4 * MS),
            tick_measured_ns: Some(4 * MS),
            jiffies: Some(4_295_133_333),
            jiffies_bits: 64,
            wrap_32_days: Some(198.8),
            wrap_64_days: Some(8.5e11),
            ..TickFacts::default()
        },
        own_cost_ns: 30,
        settings: vec![DelaySetting {
            policy: SchedulingPolicy::Other,
            slack: TimerSlackSetting::Default,
            slack_ns: Some(50_000),
            error: None,
        }],
        cells: all.map(cell).collect(),
        interrupted: vec![InterruptedDelay {
            resumption: InterruptedSleepStrategy::Remaining,
            requested_ns: 60 * MS,
            duration_ns: 61 * MS,
            ended: true,
            interruptions: 29,
            calls: 30,
            processor_ns: MS,
        }],
        claims: Vec::new(),
        limits: Vec::new(),
        findings: Vec::new(),
    }
}

fn evidence() -> DelayEvidence {
    let left_alone = Some(PendingAlarmEffect { signals: 0, elapsed_s: 1 });
    DelayEvidence {
        step_ns: Some(20),
        gettimeofday_step_ns: Some(1_000),
        irq_0_per_s: Some(0.0),
        jiffies_per_s: Some(250.3),
        rtcs: 1,
        is_set_by_rtc: true,
        sleep_alarm_interaction: left_alone,
        usleep_alarm_interaction: left_alone,
        usleep_above_limit: Some(LongUsleepResult {
            requested: Duration::from_millis(1_200),
            duration: Duration::from_millis(1_201),
            error: None,
        }),
        invalid_sleep_loop: Some(FailingSleepLoopResult {
            calls: 40_000,
            time: Duration::from_millis(10),
            processor_share: 0.98,
            voluntary_switches: 0,
        }),
        posix_version: Some(200_809),
        ..DelayEvidence::default()
    }
}

fn verdict(claims: &[TestedDelayClaim], id: &str) -> DelayClaimVerdict {
    claims.iter().find(|claim| claim.id == id).unwrap_or_else(|| panic!("no {id}")).verdict
}

#[test]
fn what_fails_on_a_kernel_of_today_fails_and_the_rest_holds() {
    let claims = all_claims(&result(55_000), &evidence());
    let fail = [
        "hz-2-6",
        "irq-0",
        "jiffies-overflows",
        "jiffies-low-half",
        "clock-as-fine-as-tick",
        "sleep-is-alarm",
        "usleep-tick",
        "switch-10-ms",
        "usleep-signals",
        "usleep-limit",
        "nanosleep-beats-usleep",
        "select-exact",
    ];
    for claim in &claims {
        let expected = match &*claim.id {
            // Where all overshoot alike, none is better.
            "select-best" => DelayClaimVerdict::Fails,
            "nanosleep-interrupted" => DelayClaimVerdict::NotMeasured,
            id if fail.contains(&id) => DelayClaimVerdict::Fails,
            _ if claim.verdict == DelayClaimVerdict::Elsewhere => DelayClaimVerdict::Elsewhere,
            _ => DelayClaimVerdict::Holds,
        };
        assert_eq!(claim.verdict, expected, "{claim:?}");
        assert!(!claim.evidence.is_empty() && !claim.evidence.contains("NaN"), "{claim:?}");
    }
    let mut ids: Vec<_> = claims.iter().map(|claim| &claim.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), claims.len(), "each has its own name");
}

#[test]
fn an_old_kernel_behaves_as_claimed() {
    let mut old = result(4 * MS);
    old.tick.jiffies_bits = 32;
    let mut evidence = evidence();
    evidence.step_ns = Some(4 * MS);
    evidence.irq_0_per_s = Some(250.0);
    evidence.sleep_alarm_interaction = Some(PendingAlarmEffect { signals: 1, elapsed_s: 100 });
    evidence.usleep_above_limit = Some(LongUsleepResult {
        requested: Duration::from_millis(1_200),
        duration: Duration::from_micros(2),
        error: Some("Invalid argument".to_owned()),
    });
    let claims = all_claims(&old, &evidence);
    for id in [
        "irq-0",
        "jiffies-overflows",
        "jiffies-low-half",
        "clock-as-fine-as-tick",
        "sleep-is-alarm",
        "usleep-tick",
        "usleep-limit",
    ] {
        assert_eq!(verdict(&claims, id), DelayClaimVerdict::Holds, "{id}");
    }
}

#[test]
fn a_resumed_wait_that_spins_or_overruns_fails_the_claim() {
    let of = |took_ns, processor_ns| {
        let mut result = result(55_000);
        result.interrupted[0].duration_ns = took_ns;
        result.interrupted[0].processor_ns = processor_ns;
        verdict(&all_claims(&result, &evidence()), "nanosleep-resumed")
    };
    assert_eq!(of(61 * MS, MS), DelayClaimVerdict::Holds);
    assert_eq!(of(61 * MS, 60 * MS), DelayClaimVerdict::Fails);
    assert_eq!(of(59 * MS, MS), DelayClaimVerdict::Fails);
    assert_eq!(of(130 * MS, MS), DelayClaimVerdict::Fails);
}

#[test]
fn what_was_not_measured_is_not_judged() {
    let mut result = result(55_000);
    result.cells.clear();
    result.interrupted.clear();
    result.tick = TickFacts::default();
    let claims = all_claims(&result, &DelayEvidence::default());
    for id in ["hz-default", "jiffies-per-second", "usleep-tick", "select-exact", "usleep-limit"] {
        assert_eq!(verdict(&claims, id), DelayClaimVerdict::NotMeasured, "{id}");
    }
}
