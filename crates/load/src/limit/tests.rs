//! Limits as text, and trials held against them.

use std::time::Duration;

use horolog_record::SearchEndReason;
use horolog_stats::SignedHistogram;
use horolog_time::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::plan::TrialPlan;
use crate::request_tracker::TrialCounts;
use crate::trial;

fn limit(text: &str) -> LoadMetricLimit {
    text.parse().unwrap()
}

/// A trial of 1000 requests at `rate`, with so many lost and all round trips of `rtt_ns`.
fn trial(rate: f64, lost: u64, rtt_ns: u64) -> Trial {
    let plan = TrialPlan::constant(rate, Duration::from_secs(1), 1);
    let mut counts = TrialCounts {
        planned: 1000,
        sent: 1000,
        received: 1000 - lost,
        late: 5,
        first_sent: Some(Timestamp::from_ns(0)),
        last_sent: Some(Timestamp::from_ns((999e9 / rate) as i64)),
        ..TrialCounts::default()
    };
    (0..1000 - lost).for_each(|_| counts.rtt.record(rtt_ns));
    trial::record(&plan, &counts, std::collections::BTreeMap::new())
}

fn search(lower: f64) -> CapacitySearchResult {
    CapacitySearchResult {
        kind: CapacitySearchGoal::Ndr,
        goal_loss_ratio: 0.0,
        rate: lower,
        lower: Some(lower),
        upper: None,
        loss_ratio: 0.0,
        end: SearchEndReason::Converged,
    }
}

#[test]
fn figures_have_the_unit_of_their_metric() {
    for (text, bound) in [
        ("loss>0.1%", 0.001),
        ("late >= 0.25", 0.25),
        ("p99>200us", 200e3),
        ("response-p99.99 > 1.5ms", 1.5e6),
        ("lateness-max<=7ns", 7.0),
        ("max>1s", 1e9),
        ("rate<1.2M", 1.2e6),
        ("rate<45k/s", 45e3),
        ("rate<1G", 1e9),
        ("lateness-p50>0", 0.0),
        ("max>1m", 60e9),
        ("ndr<950", 950.0),
    ] {
        assert!((limit(text).bound - bound).abs() <= bound * 1e-12, "{text}");
    }
}

#[test]
fn an_invalid_limit_is_refused_with_what_is_valid() {
    let refusal = |text: &str| text.parse::<LoadMetricLimit>().unwrap_err().to_string();
    for (text, expected) in [
        ("", "METRIC>VALUE"),
        ("loss", "METRIC>VALUE"),
        ("loss=1", "METRIC>VALUE"),
        ("lost>1%", "unknown metric 'lost'; choose one of loss, late"),
        ("response-loss>1%", "unknown metric 'response-loss'"),
        ("p95>1ms", "lateness-"),
        ("loss>", "invalid bound '' for loss: write a share"),
        ("loss>101%", "invalid bound '101%' for loss: write a share"),
        ("loss>-1", "write a share"),
        ("loss>nan", "write a share"),
        ("p99>200", "invalid bound '200' for p99: write a time with its unit"),
        ("p99>200 us", "invalid bound '200 us' for p99: write a time"),
        ("p99>infs", "write a time"),
        ("rate<1T", "invalid bound '1T' for rate: write a positive number"),
        ("rate<0", "write a positive number"),
        ("rate<<1", "invalid bound '<1' for rate"),
    ] {
        assert!(refusal(text).contains(expected), "{text}: {}", refusal(text));
    }
}

#[test]
fn the_worst_trial_is_the_one_that_is_judged() {
    let trials = [trial(1e3, 0, 100), trial(2e3, 30, 900), trial(4e3, 10, 300)];
    let result = limit("loss>2%").evaluate(&trials, None);
    assert_eq!((result.value, result.trial, result.failed), (Some(0.03), Some(1), true));
    assert!(!limit("loss>3%").evaluate(&trials, None).failed);
    assert!(limit("loss>=3%").evaluate(&trials, None).failed);
    assert!(limit("p99>899ns").evaluate(&trials, None).failed);
    assert!(!limit("p99>900ns").evaluate(&trials, None).failed);
    let slowest = limit("rate<1.5k").evaluate(&trials, None);
    assert_eq!((slowest.trial, slowest.failed), (Some(0), true));
    assert!(limit("late>0.4%").evaluate(&trials, None).failed);
}

#[test]
fn what_was_not_measured_breaks_its_limit() {
    let trials = [trial(1e3, 0, 100), trial(2e3, 1000, 0)];
    let result = limit("p99>1s").evaluate(&trials, None);
    assert_eq!((result.value, result.trial, result.failed), (None, Some(1), true));
    assert!(limit("response-p50>1s").evaluate(&trials[..1], None).failed);
    assert!(limit("loss>1%").evaluate(&[], None).failed);
}

#[test]
fn a_search_is_judged_by_what_it_found() {
    let trials = [trial(1e3, 0, 100), trial(2e3, 30, 900)];
    let found = search(1e3);
    assert!(!limit("loss>0%").evaluate(&trials, Some(&found)).failed);
    assert!(limit("ndr<1.1k").evaluate(&trials, Some(&found)).failed);
    assert!(!limit("ndr<1k").evaluate(&trials, Some(&found)).failed);
    assert!(limit("pdr<1").evaluate(&trials, Some(&found)).failed, "another search");
    assert_eq!(
        limit("ndr<1").required_feature(),
        Some(MetricPrerequisite::Search(CapacitySearchGoal::Ndr))
    );
}

#[test]
fn offsets_are_judged_by_how_far_they_are_off_either_way() {
    let mut offsets = SignedHistogram::new();
    (0..90).for_each(|_| offsets.record(-40_000));
    (0..10).for_each(|_| offsets.record(3_000));
    let trial =
        Trial { tx_offset_ns: SignedDistribution::from_histogram(&offsets), ..trial(1e3, 0, 100) };
    let value =
        |text: &str| limit(text).evaluate(std::slice::from_ref(&trial), None).value.unwrap();
    for (text, ns) in
        [("offset-p50>1us", 40_000.0), ("offset-p99>1us", 40_000.0), ("offset-max>1us", 40_000.0)]
    {
        assert!((value(text) - ns).abs() <= ns * 0.01, "{text}: {}", value(text));
    }
    // By their sign the median is the lowest; by its magnitude a tenth of them is lower.
    assert!(limit("offset-p50>39us").evaluate(std::slice::from_ref(&trial), None).failed);
    assert!(!limit("offset-p99>41us").evaluate(&[trial], None).failed);
    assert!(limit("offset-p99>1s").evaluate(&[super::tests::trial(1e3, 0, 1)], None).failed);
    assert_eq!(limit("offset-max>1us").required_feature(), Some(MetricPrerequisite::Offsets));
}

#[test]
fn an_nts_ke_search_is_judged_by_its_result() {
    let at = |rate, lost| NtsKeTrial {
        intended_rate: Some(rate),
        achieved_rate: rate,
        duration_s: 1.0,
        clients: 1,
        sent: 100,
        received: 100 - lost,
        lost,
        failures: std::collections::BTreeMap::new(),
        handshake_ns: None,
    };
    let (trials, found) = ([at(1e3, 0), at(2e3, 30)], search(1e3));
    let failed = |text: &str| limit(text).evaluate_nts_ke(&trials, Some(&found)).failed;
    assert!(!failed("loss>0%") && failed("ndr<1.1k") && !failed("ndr<1k") && failed("pdr<1"));
    assert!(limit("loss>0%").evaluate_nts_ke(&trials, None).failed);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "\\PC{0,40}|[a-z0-9.<>=% -]{0,20}") {
        match text.parse::<LoadMetricLimit>() {
            Ok(limit) => prop_assert_eq!(limit.text().parse::<LoadMetricLimit>(), Ok(limit)),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }

    #[test]
    fn a_limit_is_broken_on_one_side_of_its_figure(percent in 0u32..=1000, lost in 0u64..=1000) {
        let trials = [trial(1e3, lost, 100)];
        let bound = f64::from(percent) / 1000.0;
        let failed = |comparison: &str| {
            limit(&format!("loss{comparison}{bound}")).evaluate(&trials, None).failed
        };
        let share = lost as f64 / 1000.0;
        prop_assert_eq!(failed(">"), share > bound);
        prop_assert_eq!(failed("<"), share < bound);
        prop_assert_eq!(failed(">="), !failed("<"));
        prop_assert_eq!(failed("<="), !failed(">"));
    }
}
