//! HTML report: one self-contained page for a result, which loads nothing from the network and
//! embeds the result as JSON.
//!
//! Texts and tables are complete in the markup; `assets/page.js` only draws the plots from
//! precomputed points and saves the embedded result. All texts of a result are escaped, and a
//! content security policy forbids loading other resources.

pub(crate) mod bars;
pub(crate) mod breakdown;
pub(crate) mod data;
pub(crate) mod escape;
pub(crate) mod latency;
mod live;
pub(crate) mod losses;
pub(crate) mod plot;
pub(crate) mod relay_tree_gain;
pub(crate) mod sections;
pub(crate) mod series;
pub(crate) mod stability;
pub(crate) mod time_series;
pub(crate) mod trials;

use serde::Serialize;

use crate::json::to_compact_json;

pub use live::{LivePageKind, live};
pub use sections::mode_name;

const TEMPLATE: &str = include_str!("../assets/page.html");
const PAGE_CSS: &str = include_str!("../assets/page.css");
const PAGE_JS: &str = include_str!("../assets/page.js");
/// uPlot 1.6.32 (MIT licence). The licence text must accompany it and is embedded in the page.
const UPLOT_JS: &str = include_str!("../assets/uPlot.iife.min.js");
const UPLOT_LICENCE: &str = include_str!("../assets/uPlot.LICENSE");
const UPLOT_CSS: &str = include_str!("../assets/uPlot.min.css");

/// Values of the template. Texts are escaped when the page is assembled; `verdict` and `main` are
/// markup.
pub(crate) struct PageTemplateValues<'a, R: ?Sized> {
    pub(crate) kind: &'a str,
    /// Failures in words, shown first in the title and the verdict; `None` without failures.
    pub(crate) failed: Option<String>,
    pub(crate) heading: String,
    pub(crate) lead: String,
    /// Markup from [`sections::verdict`].
    pub(crate) verdict: String,
    pub(crate) main: String,
    /// Definitions of the metrics on the page.
    pub(crate) note: &'static str,
    pub(crate) schema: &'a str,
    pub(crate) plots: Vec<plot::Plot>,
    pub(crate) result: &'a R,
}

/// Definitions of the metrics of a load.
pub(crate) const LOAD_NOTE: &str = "Percentiles come from a histogram with less than 1% relative error; \
                         times count from the intended send time.";

impl<R: Serialize + ?Sized> PageTemplateValues<'_, R> {
    pub(crate) fn render(&self) -> String {
        let failed = self.failed.as_ref().map_or_else(String::new, |failed| format!("{failed} – "));
        let title = format!("{failed}{} – horolog {}", self.heading, self.kind);
        let top = sections::page_top(self.failed.as_deref(), &self.verdict);
        fill(
            TEMPLATE,
            &[
                ("title", &escape::text(&title)),
                ("kind", &escape::text(self.kind)),
                ("heading", &escape::text(&self.heading)),
                ("lead", &escape::text(&self.lead)),
                ("main", &(top + &self.main)),
                ("note", &escape::text(self.note)),
                ("schema", &escape::text(self.schema)),
                ("plots", &escape::json(&to_compact_json(&self.plots))),
                ("result", &escape::json(&to_compact_json(self.result))),
                ("page_css", PAGE_CSS),
                ("page_js", PAGE_JS),
                ("uplot_css", UPLOT_CSS),
                ("uplot_js", UPLOT_JS),
                ("uplot_licence", UPLOT_LICENCE.trim()),
            ],
        )
    }
}

/// Returns the template with each `{{name}}` replaced. Values are not expanded again, so that `{{`
/// in a value is kept; unknown names are kept too.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let length = template.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>();
    let mut page = String::with_capacity(length);
    page.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let known = part.split_once("}}").and_then(|(name, rest)| {
            values.iter().find(|(key, _)| *key == name).map(|(_, value)| (value, rest))
        });
        match known {
            Some((value, rest)) => page.extend([value, rest]),
            None => page.extend(["{{", part]),
        }
    }
    page
}

/// Returns the content of the page's `main` element.
#[cfg(test)]
pub(crate) fn main_of(page: &str) -> &str {
    let (_, rest) = page.split_once("<main>").unwrap();
    rest.split_once("</main>").unwrap().0
}

/// Returns the content of a script element as a browser reads it: up to the next `</script`.
#[cfg(test)]
pub(crate) fn embedded<T: serde::de::DeserializeOwned>(page: &str, id: &str) -> T {
    let start = format!("<script type=\"application/json\" id=\"{id}\">");
    let (_, rest) = page.split_once(&start).unwrap();
    let (json, _) = rest.split_once("</script").unwrap();
    serde_json::from_str(json).unwrap()
}

#[cfg(test)]
mod tests {
    use horolog_record::{
        BenchCoresResult, ClockSimulateResult, DemoResult, LoadResult, PathUdpResult, QueryResult,
        RelayTreeResult,
    };

    use super::*;
    use crate::document::{DescribeResult, RenderableResult};
    use crate::fixture;

    const HOSTILE: &str = "</script><script>alert(1)</script><!--<img src=x onerror='a\"b&c'>";

    fn pages() -> [String; 8] {
        [
            fixture::load().page(),
            fixture::demo().page(),
            fixture::sample::<BenchCoresResult>("bench_cores").page(),
            fixture::sample::<horolog_record::BenchRelayResult>("bench_relay").page(),
            fixture::query(100).page(),
            fixture::sample::<ClockSimulateResult>("clock").page(),
            fixture::sample::<PathUdpResult>("path_udp").page(),
            fixture::sample::<RelayTreeResult>("relay_tree").page(),
        ]
    }

    fn hostile_load() -> LoadResult {
        let mut result = fixture::load();
        result.command.push(HOSTILE.to_owned());
        result.target.name = Some(HOSTILE.to_owned());
        result.target.interface = Some(HOSTILE.to_owned());
        result.host.cpu = Some(HOSTILE.to_owned());
        result.started = HOSTILE.to_owned();
        result.schema = HOSTILE.to_owned();
        result.findings[0].message = HOSTILE.to_owned();
        result.findings[0].advice = HOSTILE.to_owned();
        result
    }

    fn hostile_demo() -> DemoResult {
        let mut result = fixture::demo();
        result.candidates[0].label = HOSTILE.to_owned();
        result.candidates[1].server_command = vec![HOSTILE.to_owned()];
        result.candidates[2].load = hostile_load();
        result
    }

    fn hostile_query() -> QueryResult {
        let mut result = fixture::query(20);
        result.command.push(HOSTILE.to_owned());
        result.started = HOSTILE.to_owned();
        result.findings[0].message = HOSTILE.to_owned();
        let server = &mut result.servers[0];
        server.name = HOSTILE.to_owned();
        server.server_state.as_mut().unwrap().reference_id = HOSTILE.to_owned();
        server.counts.kisses.insert(HOSTILE.to_owned(), 1);
        result.servers[2].ended.as_mut().unwrap().message = HOSTILE.to_owned();
        result
    }

    #[test]
    fn a_template_is_filled_once() {
        let values = [("a", "{{b}}"), ("b", "two")];
        assert_eq!(fill("<{{a}}|{{b}}|{{c}}|{{", &values), "<{{b}}|two|{{c}}|{{");
    }

    #[test]
    fn the_page_contains_the_result() {
        let (load_result, demo_result) = (fixture::load(), fixture::demo());
        assert_eq!(embedded::<LoadResult>(&load_result.page(), "result"), load_result);
        let shown: DemoResult = embedded(&demo_result.page(), "result");
        assert_eq!(shown, demo_result.embedded().unwrap());
        let histograms = |result: &DemoResult| {
            let trials = result.candidates.iter().flat_map(|one| &one.load.trials);
            trials.filter_map(|t| t.rtt_ns.as_ref()).filter(|d| !d.histogram.is_empty()).count()
        };
        assert_eq!(histograms(&shown), demo_result.candidates.len(), "one for each server");
        assert!(histograms(&demo_result) > histograms(&shown));
    }

    #[test]
    fn no_text_of_a_result_becomes_markup() {
        let harmless = [fixture::load().page(), fixture::demo().page(), fixture::query(20).page()];
        let hostile = [hostile_load().page(), hostile_demo().page(), hostile_query().page()];
        for (page, usual) in hostile.iter().zip(&harmless) {
            assert!(!page.contains("<img"));
            assert!(!page.contains("<script>alert"));
            assert_eq!(page.matches("</script>").count(), usual.matches("</script>").count());
            assert_eq!(page.matches("<!--").count(), 0);
        }
        assert_eq!(embedded::<LoadResult>(&hostile[0], "result"), hostile_load());
        assert_eq!(embedded::<QueryResult>(&hostile[2], "result"), hostile_query());
        let shown: DemoResult = embedded(&hostile[1], "result");
        assert_eq!(shown, hostile_demo().embedded().unwrap());
    }

    #[test]
    fn nothing_is_left_to_fill_in_and_nothing_is_fetched() {
        for page in pages() {
            assert!(!page.contains("{{"));
            assert!(!page.contains("src=") && !page.contains("<link") && !page.contains("url("));
        }
    }

    #[test]
    fn usual_pages_are_below_one_megabyte() {
        for page in pages() {
            assert!(page.len() < 1_000_000, "{}", page.len());
        }
    }

    #[test]
    fn every_plot_has_an_element_and_a_text_alternative() {
        for page in pages() {
            let plots: serde_json::Value = embedded(&page, "plots");
            let plots = plots.as_array().unwrap();
            assert!(plots.len() >= 2);
            for plot in plots {
                let id = plot["id"].as_str().unwrap();
                let element = format!("<div class=\"chart\" id=\"plot-{id}\"");
                let (_, rest) = page.split_once(&element).unwrap();
                let (tag, _) = rest.split_once('>').unwrap();
                assert!(tag.contains("aria-label=\""));
                for attribute in ["aria-describedby", "aria-details"] {
                    let (_, target) = tag.split_once(&format!("{attribute}=\"")).unwrap();
                    let (target, _) = target.split_once('"').unwrap();
                    assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
                }
            }
        }
    }

    #[test]
    fn a_run_without_figures_still_makes_a_page() {
        let mut degenerate = fixture::empty();
        degenerate.trials = vec![fixture::trial_without_requests(), fixture::extreme_trial()];
        // JSON has no NaN: a result that was read from a file cannot hold one.
        degenerate.trials[0].achieved_rate = 0.0;
        degenerate.trials[1].duration_s = 1e300;
        let mut candidates = fixture::demo();
        candidates.candidates[0].load = fixture::empty();
        candidates.candidates[1].load = degenerate.clone();
        let mut without_candidates = fixture::demo();
        without_candidates.candidates.clear();
        for page in [
            fixture::empty().page(),
            degenerate.page(),
            candidates.page(),
            without_candidates.page(),
        ] {
            let main = main_of(&page);
            assert!(!main.contains("NaN") && !main.contains(">inf"), "{main}");
        }
    }
}
