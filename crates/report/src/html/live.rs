//! Live page of an operation in progress. It contains no values itself; its script requests them
//! from the server that serves the page, and receives as data which metrics to show.

use serde::Serialize;

use super::escape::{self, each, text};
use super::{PAGE_CSS, UPLOT_CSS, UPLOT_JS, UPLOT_LICENCE, fill};
use crate::json::to_compact_json;

const TEMPLATE: &str = include_str!("../../assets/live.html");
const LIVE_CSS: &str = include_str!("../../assets/live.css");
const LIVE_JS: &str = include_str!("../../assets/live.js");

/// Kinds of live pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LivePageKind {
    /// Run of `horolog load`.
    Load,
    /// Server in operation.
    Serve,
}

/// Data for the script: metrics and plots to show.
#[derive(Serialize)]
struct LivePageData {
    figures: &'static [LiveMetric],
    plots: &'static [LivePlot],
    /// True if the operation has parts that end, such as trials.
    parts: bool,
    /// True if there is a complete status to show.
    status: bool,
}

/// Metric shown above the plots.
#[derive(Serialize)]
struct LiveMetric {
    id: &'static str,
    #[serde(skip)]
    label: &'static str,
    unit: &'static str,
    /// Object of the response that contains the value: the last snapshot, or the whole response.
    of: &'static str,
    path: &'static str,
}

#[derive(Serialize)]
struct LivePlot {
    id: &'static str,
    #[serde(skip)]
    title: &'static str,
    #[serde(skip)]
    hint: &'static str,
    unit: &'static str,
    log: bool,
    series: &'static [LivePlotSeries],
}

#[derive(Serialize)]
struct LivePlotSeries {
    label: &'static str,
    path: &'static str,
}

const fn series(label: &'static str, path: &'static str) -> LivePlotSeries {
    LivePlotSeries { label, path }
}

const fn figure(
    id: &'static str,
    label: &'static str,
    unit: &'static str,
    path: &'static str,
) -> LiveMetric {
    LiveMetric { id, label, unit, of: "snapshot", path }
}

const LOAD_FIGURES: &[LiveMetric] = &[
    figure("intended", "Intended", "rate", "intended_rate"),
    figure("sent_rate", "Sent", "rate", "sent_rate"),
    figure("received_rate", "Answered", "rate", "received_rate"),
    figure("unanswered", "Unanswered share", "share", "unanswered_ratio"),
    figure("p50", "Latency, p50", "ns", "latency_ns.p50"),
    figure("p99", "99th percentile", "ns", "latency_ns.p99"),
    figure("lateness", "Send lateness, 99th percentile", "ns", "lateness_ns.p99"),
    figure("sent", "Sent, total", "count", "counts.sent"),
    figure("received", "Answered, total", "count", "counts.received"),
    LiveMetric { of: "state", ..figure("lost", "Lost in finished trials", "count", "lost") },
];

const LOAD_PLOTS: &[LivePlot] = &[
    LivePlot {
        id: "rate",
        title: "Rate",
        hint: "Offered, sent and answered requests per second.",
        unit: "rate",
        log: false,
        series: &[
            series("intended", "intended_rate"),
            series("sent", "sent_rate"),
            series("answered", "received_rate"),
        ],
    },
    LivePlot {
        id: "latency",
        title: "Latency",
        hint: "From the intended send time to the reply, in the trial so far or the last \
               interval.",
        unit: "ns",
        log: true,
        series: &[
            series("50%", "latency_ns.p50"),
            series("90%", "latency_ns.p90"),
            series("99%", "latency_ns.p99"),
            series("99.9%", "latency_ns.p99_9"),
        ],
    },
    LivePlot {
        id: "errors",
        title: "Unanswered",
        hint: "Share of the requests sent since the last snapshot without a valid reply: lost or \
               in flight.",
        unit: "share",
        log: false,
        series: &[series("unanswered", "unanswered_ratio")],
    },
    LivePlot {
        id: "lateness",
        title: "Send lateness",
        hint: "From the intended to the actual send time; included in the latency.",
        unit: "ns",
        log: true,
        series: &[
            series("50%", "lateness_ns.p50"),
            series("99%", "lateness_ns.p99"),
            series("max", "lateness_ns.max"),
        ],
    },
];

const SERVE_FIGURES: &[LiveMetric] = &[
    figure("requests", "Requests", "rate", "request_rate"),
    figure("replies", "Answered", "rate", "reply_rate"),
    figure("unanswered", "Unanswered", "rate", "unanswered_rate"),
    figure("response", "Response time, 99th percentile", "ns", "response_ns.p99"),
    figure("nts", "With NTS", "rate", "nts_rate"),
    figure("error", "Clock error bound", "ns", "error_ns"),
    figure("page", "Clock page age", "ns", "page_age_ns"),
    figure("requests_all", "Requests, total", "count", "requests"),
    figure("replies_all", "Answered, total", "count", "replies"),
    LiveMetric { of: "state", ..figure("stratum", "Stratum", "count", "status.stratum") },
];

const SERVE_PLOTS: &[LivePlot] = &[
    LivePlot {
        id: "rate",
        title: "Requests",
        hint: "Requests and replies per second, by engine.",
        unit: "rate",
        log: false,
        series: &[
            series("requests", "request_rate"),
            series("socket engine", "socket_rate"),
            series("XDP engine", "xdp_rate"),
        ],
    },
    LivePlot {
        id: "response",
        title: "Response time",
        hint: "From the receive to the transmit timestamp of the socket engine's replies in that \
               second, interpolated within 1-2-5 buckets. The XDP engine has none: it reads the \
               clock once.",
        unit: "ns",
        log: true,
        series: &[series("50%", "response_ns.p50"), series("99%", "response_ns.p99")],
    },
    LivePlot {
        id: "errors",
        title: "Unanswered",
        hint: "Per second: dropped for lack of room, refused by rate limits and ACLs, and \
               invalid or otherwise refused.",
        unit: "rate",
        log: false,
        series: &[
            series("dropped", "dropped_rate"),
            series("rate limits and ACLs", "limited_rate"),
            series("other", "ignored_rate"),
        ],
    },
    LivePlot {
        id: "kinds",
        title: "Replies by kind",
        hint: "Per second: interleaved replies, NTS replies and NTS-KE exchanges.",
        unit: "rate",
        log: false,
        series: &[
            series("interleaved", "interleaved_rate"),
            series("NTS", "nts_rate"),
            series("NTS-KE exchanges", "nts_ke_rate"),
        ],
    },
    LivePlot {
        id: "clock",
        title: "Clock",
        hint: "Error bound, and absolute offset of the selected source from the system clock.",
        unit: "ns",
        log: true,
        series: &[series("error bound", "error_ns"), series("source offset", "offset_size_ns")],
    },
];

/// Returns the live page of an operation of this kind, as HTML.
#[must_use]
pub fn live(kind: LivePageKind) -> String {
    let (name, heading, note, page) = match kind {
        LivePageKind::Load => (
            "load",
            "Load run",
            "Requests in flight are neither answered nor lost; losses are final when a trial \
             ends.",
            LivePageData { figures: LOAD_FIGURES, plots: LOAD_PLOTS, parts: true, status: false },
        ),
        LivePageKind::Serve => (
            "serve",
            "Time server",
            "Rates are averages over one second.",
            LivePageData { figures: SERVE_FIGURES, plots: SERVE_PLOTS, parts: false, status: true },
        ),
    };
    fill(
        TEMPLATE,
        &[
            ("title", &format!("{heading} – horolog {name}")),
            ("kind", name),
            ("heading", heading),
            ("main", &main(&page)),
            ("note", note),
            ("page", &escape::json(&to_compact_json(&page))),
            ("page_css", PAGE_CSS),
            ("live_css", LIVE_CSS),
            ("live_js", LIVE_JS),
            ("uplot_css", UPLOT_CSS),
            ("uplot_js", UPLOT_JS),
            ("uplot_licence", UPLOT_LICENCE.trim()),
        ],
    )
}

fn main(page: &LivePageData) -> String {
    let figures = each(page.figures, |figure| {
        let (id, label) = (figure.id, text(figure.label));
        format!("<div><dt>{label}</dt><dd id=\"figure-{id}\">–</dd></div>\n")
    });
    let plots = each(page.plots, |plot| {
        let (id, title, hint) = (plot.id, text(plot.title), text(plot.hint));
        format!(
            "<figure class=\"plot\">\n<figcaption><h3>{title}</h3><p \
             class=\"hint\">{hint}</p></figcaption>\n<div class=\"chart live\" id=\"plot-{id}\" \
             aria-label=\"{title}: {hint}\" aria-describedby=\"snapshots\"></div>\n</figure>\n"
        )
    });
    let labels = each(page.plots.iter().flat_map(|plot| plot.series), |series| {
        format!("<th scope=\"col\">{}</th>", text(series.label))
    });
    let groups = each(page.plots, |plot| {
        format!(
            "<th scope=\"colgroup\" colspan=\"{}\">{}</th>",
            plot.series.len(),
            text(plot.title)
        )
    });
    let snapshots = table(
        "Last snapshots, newest first",
        &format!("<tr><th rowspan=\"2\" scope=\"col\">at</th>{groups}</tr>\n<tr>{labels}</tr>"),
        "snapshots",
    );
    let mut below = String::new();
    if page.parts {
        let columns =
            ["", "name", "intended", "sent rate", "sent", "answered", "lost", "50%", "99%"];
        below += "<h2>Finished</h2>\n";
        below += &table("Trials and phases, newest first", &head(&columns), "ended");
        below += &table("Losses by location", &head(&["location", "lost"]), "locations");
    }
    if page.status {
        below += "<details><summary>Full state</summary>\n";
        below += &table("As reported by horolog status", &head(&["name", "value"]), "status");
        below += "</details>\n";
    }
    format!(
        "<section class=\"verdict\" aria-label=\"Values of the last snapshot\">\n<dl \
         class=\"figures\">\n{figures}</dl>\n</section>\n<h2>Findings</h2>\n<ul \
         class=\"findings\" id=\"findings\" aria-live=\"polite\"></ul>\n<h2>Over \
         time</h2>\n{plots}<h2>Values</h2>\n{snapshots}{below}"
    )
}

fn head(columns: &[&str]) -> String {
    let cells = each(columns, |column| format!("<th scope=\"col\">{}</th>", text(column)));
    format!("<tr>{cells}</tr>")
}

/// Returns a table whose rows are filled in by the script.
fn table(caption: &str, head: &str, body: &str) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\
         <table class=\"data\">\n<thead>{head}</thead>\n<tbody id=\"{body}\"></tbody>\n</table>\
         </div>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_and_fetch_nothing_but_their_own_figures() {
        for kind in [LivePageKind::Load, LivePageKind::Serve] {
            let page = live(kind);
            assert!(!page.contains("{{") && !page.contains("src=") && !page.contains("url("));
            assert!(page.len() < 200_000, "{}", page.len());
            assert_eq!(page.matches("fetch(").count(), 1);
            assert!(page.contains("connect-src 'self'"));
        }
    }

    #[test]
    fn every_figure_and_plot_has_an_element() {
        let all = [
            (LivePageKind::Load, LOAD_FIGURES, LOAD_PLOTS),
            (LivePageKind::Serve, SERVE_FIGURES, SERVE_PLOTS),
        ];
        for (kind, figures, plots) in all {
            let page = live(kind);
            for figure in figures {
                assert_eq!(page.matches(&format!("id=\"figure-{}\"", figure.id)).count(), 1);
            }
            for plot in plots {
                let element = format!("id=\"plot-{}\" aria-label=\"", plot.id);
                assert_eq!(page.matches(&element).count(), 1, "{element}");
            }
        }
    }
}
