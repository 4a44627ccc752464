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
    use std::fmt::Write as _;
    use std::{env, fs};

    use horolog_record as record;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use crate::document::{DescribeResult, RenderableResult};
    use crate::fixture;
    use crate::html::{embedded, main_of};
    use crate::metrics::MetricValue;
    use crate::table::TableStyle;

    /// Width of the texts, in columns.
    const WIDTH: usize = 100;

    /// Checks the text of a result, on a wide and on a narrow terminal, its `metrics`, and its
    /// page, in which no text of the result becomes markup. `HOROLOG_WRITE_TEXTS=1` writes the
    /// expected file.
    fn check<R: DescribeResult + DeserializeOwned>(result: &R, name: &str, metrics: &str) {
        let text = result.text(&TableStyle { colour: false, width: WIDTH });
        let page = result.page();
        let found = format!("{text}\n\n{}{metrics}", page_summary(result, &page));
        let file = format!("{}crates/report/src/kinds/{name}.txt", env!("HOROLOG_REPOSITORY"));
        if env::var_os("HOROLOG_WRITE_TEXTS").is_some() {
            fs::write(&file, &found).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(found, expected, "{file}; HOROLOG_WRITE_TEXTS=1 writes it:\n{found}");
        let narrow = result.text(&TableStyle { colour: false, width: 60 });
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        assert!(longest(&narrow) <= longest(&text), "{narrow}");
        let page = with_markup(result).page();
        assert!(!page.contains("<img") && main_of(&page).contains("&lt;img"));
    }

    /// Returns the headline of the page, and the names of its plots.
    fn page_summary<R: DescribeResult>(result: &R, page: &str) -> String {
        let headline = result.document().headline;
        let plots: Vec<Value> = embedded(page, "plots");
        let mut lines = format!("page: {}: {:?}\n", headline.name, headline.value);
        for plot in &plots {
            writeln!(lines, "page: plot {}", plot["id"]).unwrap();
        }
        lines
    }

    /// Returns the values of all metrics of a result, as they are limited and as they are compared.
    fn metric_values<R: DescribeResult + 'static>(result: &R) -> String {
        let mut lines = String::new();
        for metric in R::metrics() {
            let (name, unit) = (&metric.name, metric.unit);
            if metric.is_limited() {
                for (item, value) in metric.values(result) {
                    writeln!(lines, "limited: {name} ({unit:?}) of '{item}': {value:?}").unwrap();
                }
            }
            for (item, value) in metric.compared_values(result).unwrap() {
                let value = value.as_ref().map_or_else(|| "None".to_owned(), compared_text);
                writeln!(lines, "compared: {name} of '{item}': {value}").unwrap();
            }
        }
        lines
    }

    fn compared_text(value: &MetricValue<'_>) -> String {
        match value {
            MetricValue::Histogram(times) => {
                let [median, max] = [0.5, 1.0].map(|quantile| times.value_at_quantile(quantile));
                format!("{} times, median {median:?}, maximum {max:?}", times.count())
            }
            value => format!("{value:?}"),
        }
    }

    /// Returns the result with markup in all texts that its type accepts.
    fn with_markup<R: DescribeResult + DeserializeOwned>(result: &R) -> R {
        let mut value = serde_json::to_value(result).unwrap();
        let mut pointers = Vec::new();
        collect_texts(&value, "", &mut pointers);
        for pointer in pointers {
            let text = value.pointer(&pointer).and_then(Value::as_str).unwrap().to_owned();
            *value.pointer_mut(&pointer).unwrap() = format!("{text}<img src=x>").into();
            if R::deserialize(&value).is_err() {
                *value.pointer_mut(&pointer).unwrap() = text.into();
            }
        }
        R::deserialize(&value).unwrap()
    }

    /// Appends the JSON pointers of all texts in a value.
    fn collect_texts(value: &Value, pointer: &str, pointers: &mut Vec<String>) {
        match value {
            Value::String(_) => pointers.push(pointer.to_owned()),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    collect_texts(item, &format!("{pointer}/{index}"), pointers);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    collect_texts(field, &format!("{pointer}/{name}"), pointers);
                }
            }
            _ => {}
        }
    }

    macro_rules! check_samples {
        ($($kind:ident $type:ident $schema:ident,)*) => {$(
            let result: record::$type = fixture::sample(stringify!($kind));
            check(&result, stringify!($kind), &metric_values(&result));
        )*};
    }

    #[test]
    fn texts_pages_and_metrics_are_as_expected() {
        record::result_kinds!(check_samples);
        check(&fixture::load(), "load_search", "");
        check(&fixture::demo(), "demo_contest", "");
        check(&fixture::bench_nts(), "bench_nts_capacities", "");
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
