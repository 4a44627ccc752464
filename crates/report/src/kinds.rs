//! Kinds of results that describe themselves as documents, one file each.

mod after;
mod at;
mod bench_cores;
mod bench_nts;
mod bench_relay;
pub(crate) mod campaign;
mod clock;
mod clock_compare;
mod clock_log;
mod compare;
mod cycle;
mod cycle_predict;
mod cycle_test;
mod demo;
mod host_all;
mod host_clock;
mod host_delay;
mod host_interrupt;
mod host_nic;
mod host_switch;
mod host_timer;
mod load;
mod nts_ke;
mod path_stall;
mod path_tcp;
mod path_udp;
mod query;
pub(crate) mod relay_tree;

pub use after::{after_line, dependency_name};
pub(crate) use compare::compared_figure;
pub use compare::compared_name;
pub use cycle_test::fault_name as cycle_test_fault_name;
pub use host_all::host_part;
pub use host_delay::setting_name;
pub use host_switch::{exchange_name, peer_name};
pub use path_stall::{
    mechanism as stall_mechanism, not_followed as stall_not_followed, pattern as stall_pattern,
};

#[cfg(test)]
mod tests {
    use horolog_record as record;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use crate::document::{DescribeResult, RenderResult};
    use crate::fixture;
    use crate::html::main_of;
    use crate::table::TableStyle;

    /// Checks the text of a result, on a wide and on a narrow terminal, and its page, in which no
    /// text of the result becomes markup.
    fn check<R: DescribeResult + DeserializeOwned>(result: &R, width: usize, expected: &str) {
        let text = result.text(&TableStyle { colour: false, width });
        assert_eq!(text, expected.trim_end(), "\n{text}");
        let narrow = result.text(&TableStyle { colour: false, width: 60 });
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        assert!(longest(&narrow) <= longest(&text), "{narrow}");
        let mut value = serde_json::to_value(result).unwrap();
        add_markup(&mut value);
        let page = serde_json::from_value::<R>(value).unwrap().page();
        assert!(!page.contains("<img") && main_of(&page).contains("&lt;img"));
    }

    /// Adds markup to the texts that come from the measured system.
    fn add_markup(value: &mut Value) {
        const FREE_TEXTS: [&str; 8] = [
            "message",
            "advice",
            "name",
            "reason",
            "kernel",
            "idle_driver",
            "statement",
            "reference",
        ];
        match value {
            Value::Array(items) => items.iter_mut().for_each(add_markup),
            Value::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Value::String(text) if FREE_TEXTS.contains(&name.as_str()) => {
                            text.push_str("<img src=x>");
                        }
                        field => add_markup(field),
                    }
                }
            }
            _ => {}
        }
    }

    macro_rules! golden {
        ($kind:ident $type:ident, $width:literal) => {
            check(
                &fixture::sample::<record::$type>(stringify!($kind)),
                $width,
                include_str!(concat!("kinds/", stringify!($kind), ".txt")),
            )
        };
        ($kind:ident, $width:literal) => {
            check(
                &fixture::$kind(),
                $width,
                include_str!(concat!("kinds/", stringify!($kind), ".txt")),
            )
        };
    }

    #[test]
    fn texts_and_pages_are_as_expected() {
        golden!(compare RunsCompareResult, 100);
        golden!(host_all HostAllResult, 100);
        golden!(host_clock HostClockResult, 100);
        golden!(relay_tree RelayTreeResult, 100);
        golden!(campaign CampaignResult, 100);
        golden!(cycle_test CycleTestResult, 100);
        golden!(cycle_predict CyclePredictResult, 100);
        golden!(cycle CycleResult, 100);
        golden!(at AtResult, 100);
        golden!(bench_cores BenchCoresResult, 80);
        golden!(bench_nts, 80);
        golden!(bench_relay, 80);
        golden!(demo, 90);
        golden!(after AfterResult, 100);
        golden!(clock_compare ClockCompareResult, 100);
        golden!(clock ClockSimulateResult, 100);
        golden!(host_delay HostDelayResult, 100);
        golden!(host_interrupt HostInterruptResult, 110);
        golden!(host_nic HostNicResult, 100);
        golden!(host_switch HostSwitchResult, 110);
        golden!(host_timer HostTimerResult, 100);
        golden!(path_stall PathStallResult, 132);
        golden!(path_tcp PathTcpResult, 100);
        golden!(path_udp PathUdpResult, 120);
        golden!(clock_log, 100);
        golden!(load, 100);
    }

    #[test]
    fn one_core_has_bars_and_one_interval_is_no_series() {
        let mut result: record::HostTimerResult = fixture::sample("host_timer");
        result.cores.truncate(1);
        result.cores[0].series.truncate(1);
        let text = result.text(&TableStyle { colour: false, width: 80 });
        assert!(text.contains("\nlatency, 1,000 values, from:\n   5.62 µs |#"), "{text}");
        assert!(!text.contains("over time"), "{text}");
    }
}
