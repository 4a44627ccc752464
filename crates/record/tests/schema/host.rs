//! What the results of this host's measurements share, as any that the types allow.

use horolog_record::{HostConditions, ThreadScheduling};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::choices::POLICIES;
use crate::strategies::chosen;

pub(crate) fn conditions() -> impl Strategy<Value = HostConditions> {
    let texts: [_; 3] = std::array::from_fn(|_| option::of(any::<String>()));
    let rest = (option::of(any::<u32>()), option::of(any::<u64>()), option::of(any::<u64>()));
    (any::<bool>(), texts, vec(any::<String>(), 0..3), rest).prop_map(
        |(memory_locked, texts, idle_states, rest)| {
            let [memory_error, cpu_dma_latency_error, idle_driver] = texts;
            let (cpu_dma_latency_us, real_time_runtime_us, real_time_period_us) = rest;
            HostConditions {
                memory_locked,
                memory_error,
                cpu_dma_latency_us,
                cpu_dma_latency_error,
                idle_driver,
                idle_states,
                real_time_runtime_us,
                real_time_period_us,
            }
        },
    )
}

pub(crate) fn scheduling() -> impl Strategy<Value = ThreadScheduling> {
    let rest = (option::of(any::<String>()), option::of(any::<u64>()));
    (chosen(POLICIES), any::<u8>(), rest).prop_map(|(policy, priority, (error, timer_slack_ns))| {
        ThreadScheduling { policy, priority, error, timer_slack_ns }
    })
}
