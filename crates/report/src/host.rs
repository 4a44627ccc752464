//! Texts for measurements of a host's scheduler, shared by the terminal and the HTML reports:
//! thread scheduling, host conditions, and values of a distribution.

use horolog_record::{Distribution, HostConditions, SchedulingPolicy, ThreadScheduling};

use crate::units::{ABSENT, full_count, human_ns, mean_ns};

/// Titles of the cells of [`latency_figures`].
pub(crate) const LATENCY_TITLES: [&str; 8] =
    ["count", "min", "mean", "p50", "p99", "p99.9", "max", "deviation"];

/// Returns the cells of a distribution, in the order of [`LATENCY_TITLES`]; [`ABSENT`] in all
/// without a distribution.
pub(crate) fn latency_figures(distribution: Option<&Distribution>) -> [String; 8] {
    let Some(d) = distribution else { return std::array::from_fn(|_| ABSENT.to_owned()) };
    [
        full_count(d.count),
        human_ns(d.min),
        mean_ns(d.mean),
        human_ns(d.p50),
        human_ns(d.p99),
        human_ns(d.p99_9),
        human_ns(d.max),
        mean_ns(d.stddev),
    ]
}

/// Returns the scheduling of threads as text, and whether real time was refused.
pub(crate) fn scheduling(scheduling: &ThreadScheduling) -> String {
    let refused = if scheduling.error.is_some() { " (real time refused)" } else { "" };
    match (scheduling.policy, scheduling.timer_slack_ns) {
        (SchedulingPolicy::Fifo, _) => format!("SCHED_FIFO at priority {}", scheduling.priority),
        (SchedulingPolicy::Other, None) => format!("SCHED_OTHER{refused}"),
        (SchedulingPolicy::Other, Some(slack)) => {
            format!("SCHED_OTHER{refused}, timer slack {}", human_ns(slack))
        }
    }
}

/// Returns the host conditions as one sentence: memory, idle states and throttling.
pub(crate) fn conditions(conditions: &HostConditions) -> String {
    let memory = if conditions.memory_locked { "locked" } else { "not locked" };
    let idle = match conditions.cpu_dma_latency_us {
        Some(us) => format!("/dev/cpu_dma_latency held at {us} µs"),
        None if conditions.cpu_dma_latency_error.is_some() => {
            "/dev/cpu_dma_latency not available".to_owned()
        }
        None => "idle states unrestricted".to_owned(),
    };
    let driver = conditions.idle_driver.as_deref().map_or_else(
        || "no idle driver".to_owned(),
        |driver| format!("idle driver {driver} ({})", conditions.idle_states.join(", ")),
    );
    let throttling = match (conditions.real_time_runtime_us, conditions.real_time_period_us) {
        (Some(runtime), Some(period)) => format!(
            "real-time threads may run {} in {}",
            human_ns(runtime.saturating_mul(1_000)),
            human_ns(period.saturating_mul(1_000))
        ),
        _ => "real-time threads are not throttled".to_owned(),
    };
    format!("Memory {memory}; {idle}, {driver}; {throttling}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_conditions_are_reported_as_such() {
        let text = conditions(&HostConditions::default());
        assert_eq!(
            text,
            "Memory not locked; idle states unrestricted, no idle driver; real-time threads are \
             not throttled."
        );
        let locked = HostConditions { memory_locked: true, ..HostConditions::default() };
        assert!(conditions(&locked).starts_with("Memory locked; idle states unrestricted"));
        assert!(latency_figures(None).iter().all(|figure| figure == ABSENT));
    }

    #[test]
    fn refused_real_time_is_reported() {
        let refused = ThreadScheduling {
            policy: SchedulingPolicy::Other,
            priority: 0,
            error: Some("no".to_owned()),
            timer_slack_ns: Some(50_000),
        };
        let text = scheduling(&refused);
        assert_eq!(text, "SCHED_OTHER (real time refused), timer slack 50.0 µs");
    }
}
