//! The page of something that is going on: it holds no figures, and asks for them where it came
//! from. What it shows of them is told to its script as data.

use serde::Serialize;

use super::escape::{self, each, text};
use super::{PAGE_CSS, UPLOT_CSS, UPLOT_JS, UPLOT_LICENCE, fill};
use crate::json::to_compact_json;

const TEMPLATE: &str = include_str!("../../assets/live.html");
const LIVE_CSS: &str = include_str!("../../assets/live.css");
const LIVE_JS: &str = include_str!("../../assets/live.js");

/// What is going on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Live {
    /// A run of `horolog load`.
    Load,
    /// A server.
    Serve,
}

/// What the script is told.
#[derive(Serialize)]
struct Page {
    figures: &'static [Figure],
    plots: &'static [Plot],
    /// Whether there are parts that end.
    parts: bool,
    /// Whether there is a whole state to show.
    status: bool,
}

/// A figure above the plots.
#[derive(Serialize)]
struct Figure {
    id: &'static str,
    #[serde(skip)]
    label: &'static str,
    unit: &'static str,
    /// Where it stands: in the last look, or in all that is answered.
    of: &'static str,
    path: &'static str,
}

#[derive(Serialize)]
struct Plot {
    id: &'static str,
    #[serde(skip)]
    title: &'static str,
    #[serde(skip)]
    hint: &'static str,
    unit: &'static str,
    log: bool,
    series: &'static [Series],
}

#[derive(Serialize)]
struct Series {
    label: &'static str,
    path: &'static str,
}

const fn series(label: &'static str, path: &'static str) -> Series {
    Series { label, path }
}

const fn figure(
    id: &'static str,
    label: &'static str,
    unit: &'static str,
    path: &'static str,
) -> Figure {
    Figure { id, label, unit, of: "look", path }
}

const LOAD_FIGURES: &[Figure] = &[
    figure("offered", "Offered", "rate", "offered_rate"),
    figure("sent_rate", "Sent", "rate", "sent_rate"),
    figure("received_rate", "Answered", "rate", "received_rate"),
    figure("unanswered", "Unanswered of late", "share", "unanswered_ratio"),
    figure("p50", "Latency, median", "ns", "latency_ns.p50"),
    figure("p99", "99th percentile", "ns", "latency_ns.p99"),
    figure("lateness", "Sent late by, 99th percentile", "ns", "lateness_ns.p99"),
    figure("sent", "Sent in all", "count", "counts.sent"),
    figure("received", "Answered in all", "count", "counts.received"),
    Figure { of: "told", ..figure("lost", "Lost in what is over", "count", "lost") },
];

const LOAD_PLOTS: &[Plot] = &[
    Plot {
        id: "rate",
        title: "Rate",
        hint: "What was planned, what left and what was answered, per second.",
        unit: "rate",
        log: false,
        series: &[
            series("offered", "offered_rate"),
            series("sent", "sent_rate"),
            series("answered", "received_rate"),
        ],
    },
    Plot {
        id: "latency",
        title: "Latency",
        hint: "From the intended send instant to the reply, of the trial so far or of the last \
               interval.",
        unit: "ns",
        log: true,
        series: &[
            series("median", "latency_ns.p50"),
            series("90%", "latency_ns.p90"),
            series("99%", "latency_ns.p99"),
            series("99.9%", "latency_ns.p99_9"),
        ],
    },
    Plot {
        id: "errors",
        title: "Unanswered",
        hint: "The share of what left since the last look that has no valid reply: lost, or on its \
               way.",
        unit: "share",
        log: false,
        series: &[series("unanswered", "unanswered_ratio")],
    },
    Plot {
        id: "lateness",
        title: "Lateness of the generator",
        hint: "From the intended to the real send instant: latency includes it.",
        unit: "ns",
        log: true,
        series: &[
            series("median", "lateness_ns.p50"),
            series("99%", "lateness_ns.p99"),
            series("most", "lateness_ns.max"),
        ],
    },
];

const SERVE_FIGURES: &[Figure] = &[
    figure("requests", "Requests", "rate", "request_rate"),
    figure("replies", "Answered", "rate", "reply_rate"),
    figure("unanswered", "Not answered", "rate", "unanswered_rate"),
    figure("response", "Response time, 99th percentile", "ns", "response_ns.p99"),
    figure("nts", "With NTS", "rate", "nts_rate"),
    figure("error", "Clock's error within", "ns", "error_ns"),
    figure("page", "Clock page, age", "ns", "page_age_ns"),
    figure("requests_all", "Requests in all", "count", "requests"),
    figure("replies_all", "Answered in all", "count", "replies"),
    Figure { of: "told", ..figure("stratum", "Stratum", "count", "status.stratum") },
];

const SERVE_PLOTS: &[Plot] = &[
    Plot {
        id: "rate",
        title: "Requests",
        hint: "What came and what was answered, per second, by the body that answered.",
        unit: "rate",
        log: false,
        series: &[
            series("requests", "request_rate"),
            series("by sockets", "socket_rate"),
            series("by XDP", "xdp_rate"),
        ],
    },
    Plot {
        id: "response",
        title: "Response time",
        hint: "From the receive to the transmit timestamp of the sockets' replies in that second, \
               interpolated within buckets of 1-2-5 steps. Replies by XDP have none: it reads the \
               clock once.",
        unit: "ns",
        log: true,
        series: &[series("median", "response_ns.p50"), series("99%", "response_ns.p99")],
    },
    Plot {
        id: "errors",
        title: "Not answered",
        hint: "Per second: dropped for want of room, turned away by limits and lists, and no \
               requests at all or refused otherwise.",
        unit: "rate",
        log: false,
        series: &[
            series("dropped", "dropped_rate"),
            series("limits", "limited_rate"),
            series("others", "ignored_rate"),
        ],
    },
    Plot {
        id: "kinds",
        title: "Kinds of replies",
        hint: "Per second, of those that were not plain, and key establishments.",
        unit: "rate",
        log: false,
        series: &[
            series("interleaved", "interleaved_rate"),
            series("NTS", "nts_rate"),
            series("key establishments", "nts_ke_rate"),
        ],
    },
    Plot {
        id: "clock",
        title: "Clock",
        hint: "The bound of its error, and how far the selected source is from the system clock, \
               without its sign.",
        unit: "ns",
        log: true,
        series: &[series("error within", "error_ns"), series("source", "offset_size_ns")],
    },
];

/// The page.
#[must_use]
pub fn live(kind: Live) -> String {
    let (name, heading, note, page) = match kind {
        Live::Load => (
            "load",
            "A load run",
            "A request that is on its way is neither answered nor lost; what is lost is known when \
             a trial is over.",
            Page { figures: LOAD_FIGURES, plots: LOAD_PLOTS, parts: true, status: false },
        ),
        Live::Serve => (
            "serve",
            "A time server",
            "Rates are of one second.",
            Page { figures: SERVE_FIGURES, plots: SERVE_PLOTS, parts: false, status: true },
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

fn main(page: &Page) -> String {
    let figures = each(page.figures, |figure| {
        let (id, label) = (figure.id, text(figure.label));
        format!("<div><dt>{label}</dt><dd id=\"figure-{id}\">–</dd></div>\n")
    });
    let plots = each(page.plots, |plot| {
        let (id, title, hint) = (plot.id, text(plot.title), text(plot.hint));
        format!(
            "<figure class=\"plot\">\n<figcaption><h3>{title}</h3><p class=\"hint\">{hint}</p>\
             </figcaption>\n<div class=\"chart live\" id=\"plot-{id}\" \
             aria-label=\"{title}: {hint}\" aria-describedby=\"looks\"></div>\n</figure>\n"
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
    let looks = table(
        "The last looks, the latest first",
        &format!("<tr><th rowspan=\"2\" scope=\"col\">at</th>{groups}</tr>\n<tr>{labels}</tr>"),
        "looks",
    );
    let mut below = String::new();
    if page.parts {
        let columns =
            ["", "name", "offered", "sent rate", "sent", "answered", "lost", "median", "99%"];
        below += "<h2>What is over</h2>\n";
        below += &table("Trials and phases, the latest first", &head(&columns), "ended");
        below += &table("Losses by place", &head(&["place", "lost"]), "places");
    }
    if page.status {
        below += "<details><summary>The whole state</summary>\n";
        below += &table("As horolog status tells it", &head(&["name", "value"]), "status");
        below += "</details>\n";
    }
    format!(
        "<section class=\"verdict\" aria-label=\"Figures of the last look\">\n\
         <dl class=\"figures\">\n{figures}</dl>\n</section>\n\
         <h2>Findings</h2>\n<ul class=\"findings\" id=\"findings\" aria-live=\"polite\"></ul>\n\
         <h2>Over time</h2>\n{plots}<h2>The same figures</h2>\n{looks}{below}"
    )
}

fn head(columns: &[&str]) -> String {
    let cells = each(columns, |column| format!("<th scope=\"col\">{}</th>", text(column)));
    format!("<tr>{cells}</tr>")
}

/// A table whose rows are filled in by the script.
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
        for kind in [Live::Load, Live::Serve] {
            let page = live(kind);
            assert!(!page.contains("{{") && !page.contains("src=") && !page.contains("url("));
            assert!(page.len() < 200_000, "{}", page.len());
            assert_eq!(page.matches("fetch(").count(), 1);
            assert!(page.contains("connect-src 'self'"));
        }
    }

    #[test]
    fn every_figure_and_plot_has_its_place() {
        let all =
            [(Live::Load, LOAD_FIGURES, LOAD_PLOTS), (Live::Serve, SERVE_FIGURES, SERVE_PLOTS)];
        for (kind, figures, plots) in all {
            let page = live(kind);
            for figure in figures {
                assert_eq!(page.matches(&format!("id=\"figure-{}\"", figure.id)).count(), 1);
            }
            for plot in plots {
                let place = format!("id=\"plot-{}\" aria-label=\"", plot.id);
                assert_eq!(page.matches(&place).count(), 1, "{place}");
            }
        }
    }
}
