//! The options as ntpperf's own page has them, and what they mean.

use super::*;
use clap::Parser;
use horolog_record::RequestMode;

#[derive(Parser, Debug)]
struct Command {
    #[command(flatten)]
    args: NtpperfArgs,
}

const NETWORK: [&str; 6] = ["-i", "eth0", "-s", "172.18.0.0/16", "-d", "192.168.123.1"];

fn parsed(more: &[&str]) -> Result<NtpperfArgs, clap::Error> {
    let arguments = ["ntpperf"].iter().chain(&NETWORK).chain(more);
    Command::try_parse_from(arguments).map(|command| command.args)
}

fn options(more: &[&str]) -> LoadOptions {
    parsed(more).unwrap().resolve().unwrap()
}

/// Returns the only kind of requests.
fn requests(more: &[&str]) -> RequestKind {
    options(more).requests.parts()[0].request_kind.clone()
}

fn ramp(options: &LoadOptions) -> Ramp {
    match options.job {
        LoadProcedure::Ramp(ramp) => ramp,
        _ => panic!("no ramp"),
    }
}

#[test]
fn defaults_are_those_of_ntpperf() {
    let options = options(&["-B"]);
    let ramp = ramp(&options);
    assert_eq!((ramp.min, ramp.max, ramp.multiplier), (1e3, 1e6, 1.5));
    assert_eq!(ramp.duration, Duration::from_secs(2));
    assert_eq!((options.threads, options.rate_per_client), (Some(1), Some(10.0)));
    assert_eq!((options.clients, options.spacing), (None, RequestSpacing::Constant));
    assert!(options.offset.is_none() && options.warm_up == 0);
    assert_eq!(options.requests.mode(), RequestMode::NtpBasic);
    assert_eq!(options.hints.interface.as_deref(), Some("eth0"));
    assert_eq!(options.source_network, Some("172.18.0.0/16".parse().unwrap()));
}

/// The commands of its examples.
#[test]
fn the_examples_are_understood() {
    let mac = ["-m", "AA:BB:CC:DD:EE:FF"];
    let basic = options(&[&mac[..], &["-B", "-o", "1.95e-6", "-H"]].concat());
    let method = ServerOffsetOptions {
        correction: Span::from_ns(1_950),
        mean_of_server: false,
        hardware: true,
    };
    assert_eq!(basic.offset, Some(method));
    assert_eq!(basic.hints.mac, Some("aa:bb:cc:dd:ee:ff".parse().unwrap()));
    let interleaved = requests(&["-I", "-o", "1.95e-6", "-H"]);
    assert_eq!(interleaved.mode(), RequestMode::NtpInterleaved);
    let key = "44508CC523BD3FF2334A3B73E70969BF69BC4753EB745FD8EC054FF083DF788C";
    let nts = requests(&["-B", "-S", &format!("{key},2D1FF1538B637C3D")]);
    assert!(nts.sessions().is_some_and(|sessions| !sessions.can_open()));
    let plan = |kind, multicast| PtpRequestOptions {
        kind,
        domain: 0,
        minor_version: 0,
        multicast,
        transport: PtpLoadTransport::Udp,
    };
    assert_eq!(requests(&["-D", "0"]).ptp(), Some(plan(PtpRequestKind::Delay, false)));
    let monitor = ["-N", "0", "-o", "1.95e-6", "-H"];
    assert_eq!(requests(&monitor).ptp(), Some(plan(PtpRequestKind::Nsm, false)));
    assert_eq!(options(&monitor).offset, Some(method));
}

#[test]
fn options_are_written_as_getopt_has_them() {
    let options =
        options(&["-Bler2000-4000", "-x2", "-t.5", "-p", "2", "-o-1e-6", "-O", "-r", "3000"]);
    let ramp = ramp(&options);
    assert_eq!((ramp.min, ramp.max, ramp.multiplier), (3e3, 3e3, 2.0));
    assert_eq!((ramp.duration, options.threads), (Duration::from_millis(500), Some(2)));
    assert_eq!(options.spacing, RequestSpacing::Exponential);
    let offset = options.offset.unwrap();
    assert_eq!((offset.correction, offset.mean_of_server), (Span::from_ns(-1_000), true));
    assert!(parsed(&["-B", "-l"]).unwrap().late);
}

/// Whatever its option parser takes: the limits there are those of an `int`, not of its help.
#[test]
fn the_forms_that_ntpperf_takes_are_taken() {
    let rates = |text| ramp(&options(&["-B", "-r", text]));
    for (text, expected) in [
        ("100", (100.0, 100.0)),
        ("1-9", (1.0, 9.0)),
        ("2000000-4000000", (2e6, 4e6)),
        ("+5000", (5e3, 5e3)),
    ] {
        let Ramp { min, max, .. } = rates(text);
        assert_eq!((min, max), expected, "{text}");
    }
    assert_eq!(requests(&["-B", "-I"]).mode(), RequestMode::NtpInterleaved);
    assert_eq!(requests(&["-I", "-B"]).mode(), RequestMode::NtpBasic);
    assert_eq!(requests(&["-B", "-D", "3"]).ptp().map(|ptp| ptp.domain), Some(3));
    assert!(requests(&["-D", "3", "-B"]).ptp().is_none());
    assert_eq!(requests(&["-N", "1", "-D", "2", "-M"]).ptp().map(|ptp| ptp.multicast), Some(true));
    let mac = options(&["-B", "-m", "2:0:5e:a:0:1"]).hints.mac;
    assert_eq!(mac, Some("02:00:5e:0a:00:01".parse().unwrap()));
    for more in [&["-p16"][..], &["-t", "1e1"], &["-x", "2.5e0"], &["-s", "10.0.0.9/32"], &["-HO"]]
    {
        assert!(parsed(&[&["-B"], more].concat()).is_ok(), "{more:?}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let cases: [&[&str]; 15] = [
        &[],
        &["-D", "256"],
        &["-N"],
        &["-B", "-M"],
        &["-N", "0", "-M"],
        &["-B", "-r", "0"],
        &["-B", "-r", "1000-1000000001"],
        &["-B", "-r", "1000-"],
        &["-B", "-r", "2000-1000"],
        &["-B", "-r", "1k"],
        &["-B", "-t", "0"],
        &["-B", "-o", "soon"],
        &["-B", "-m", "AA:BB"],
        &["-D", "0", "-S", "aa,bb"],
        &["-I", "-S", "aa,bb"],
    ];
    for case in cases {
        assert!(parsed(case).is_err(), "{case:?}");
    }
    let secret = parsed(&["-B", "-S", "c0ffee"]).unwrap().resolve().err().unwrap();
    assert!(!secret.to_string().contains("c0ffee"), "{secret}");
}

#[test]
fn the_panel_follows_from_the_options() {
    let table = |more: &[&str]| parsed(more).unwrap().table();
    let (response, offset) =
        (Some(NtpperfColumnGroup::ResponseTime), Some(NtpperfColumnGroup::Offset));
    assert_eq!(table(&["-B"]), NtpperfTableOptions { ptp: false, panel: response });
    assert_eq!(table(&["-I", "-o0"]), NtpperfTableOptions { ptp: false, panel: offset });
    assert_eq!(table(&["-D", "1"]), NtpperfTableOptions { ptp: true, panel: None });
    assert_eq!(table(&["-D", "1", "-o0"]), NtpperfTableOptions { ptp: true, panel: None });
    assert_eq!(table(&["-N", "1"]), NtpperfTableOptions { ptp: true, panel: response });
    assert_eq!(table(&["-N", "1", "-o0"]), NtpperfTableOptions { ptp: true, panel: offset });
}

/// A trial of two seconds at 10,000 requests per second.
fn trial(sent: u64, achieved_rate: f64) -> Trial {
    serde_json::from_value(serde_json::json!({
        "intended_rate": 10_000.0, "achieved_rate": achieved_rate, "duration_s": 2.0,
        "clients": 1_000, "sent": sent, "received": 0, "lost": sent, "duplicate": 0, "late": 0,
        "invalid": {}, "responses": { "basic": 0 }, "lost_at": {},
    }))
    .unwrap()
}

#[test]
fn a_rate_that_could_not_be_sent_is_known_from_chance() {
    let rows = |spacing| NtpperfTrialPrinter {
        table: parsed(&["-B"]).unwrap().table(),
        progress: ProgressLine::new(),
        duration_s: 2.0,
        spacing,
        late_allowed: false,
        gave_up: false,
        is_stopped: false,
    };
    let constant = rows(RequestSpacing::Constant);
    assert!(!constant.is_behind(&trial(19_900, 9_950.0)));
    assert!(constant.is_behind(&trial(19_600, 10_000.0)), "refused on the way out");
    assert!(constant.is_behind(&trial(20_000, 9_800.0)), "sent too slowly");
    let exponential = rows(RequestSpacing::Exponential);
    assert!(!exponential.is_behind(&trial(19_400, 9_700.0)));
    assert!(exponential.is_behind(&trial(19_200, 9_600.0)));
}

#[test]
fn the_name_that_it_is_called_by_is_the_command() {
    let of = |words: &[&str]| -> Vec<String> {
        let all = arguments(words.iter().map(OsString::from));
        all.into_iter().map(|argument| argument.into_string().unwrap()).collect()
    };
    assert_eq!(of(&["/usr/bin/ntpperf", "-B"]), ["horolog", "ntpperf", "-B"]);
    assert_eq!(of(&["./horolog", "ntpperf", "-B"]), ["./horolog", "ntpperf", "-B"]);
    assert!(of(&[]).is_empty());
}

/// In the order of its page, and each of them once.
#[test]
fn the_help_names_every_option_in_order() {
    use clap::CommandFactory;
    let help = Command::command().render_help().to_string();
    let mut rest = help.as_str();
    for option in "BIDNisdmMrpelxtoOHSh".chars() {
        let name = format!("\n  -{option}");
        let at = rest.find(&name).unwrap_or_else(|| panic!("-{option} is not in {rest}"));
        rest = &rest[at + name.len()..];
    }
    assert!(!help.contains("Options:\n  -"), "{help}");
}
