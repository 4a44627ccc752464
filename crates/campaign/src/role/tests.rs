//! Every option of every kind becomes what its command takes, and nothing else does.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn files() -> CommandFiles<'static> {
    CommandFiles {
        result: Path::new("/j/result"),
        table: Path::new("/j/table"),
        socket: Path::new("/j/socket"),
    }
}

fn options(pairs: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    pairs.iter().map(|(name, all)| ((*name).to_owned(), values(all))).collect()
}

fn words(kind: RoleKind, pairs: &[(&str, &[&str])]) -> Vec<String> {
    let line = kind.command_line(&options(pairs), &files()).unwrap();
    line.argv.iter().map(|word| word.to_str().unwrap().to_owned()).collect()
}

fn refused(kind: RoleKind, pairs: &[(&str, &[&str])]) -> String {
    kind.command_line(&options(pairs), &files()).unwrap_err().to_string()
}

/// A value of each type.
pub(crate) fn example(value: RoleOptionType) -> &'static str {
    match value {
        RoleOptionType::Target | RoleOptionType::Network => "192.0.2.1",
        RoleOptionType::TargetPort | RoleOptionType::Listen => "[2001:db8::1]:123",
        RoleOptionType::Rate => "1.5k",
        RoleOptionType::Rates => "1k-2k",
        RoleOptionType::Time => "100ms",
        RoleOptionType::Count(_) => "1",
        RoleOptionType::Size => "64",
        RoleOptionType::Sizes(..) => "64,1000..5000:1000",
        RoleOptionType::Factor => "1=1.5",
        RoleOptionType::Cores => "0,1",
        RoleOptionType::Tasks => "[[task]]\nname = \"a\"\nperiod = \"10ms\"\n",
        RoleOptionType::Name => "node-2",
        RoleOptionType::Choice(words) => words[0],
        RoleOptionType::Switch => "true",
    }
}

#[test]
fn names_are_those_of_the_wire() {
    for kind in RoleKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        let mut names: Vec<_> = kind.options().iter().map(|option| option.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kind.options().len(), "{kind}");
    }
    let error = "shell".parse::<RoleKind>().unwrap_err();
    assert!(error.starts_with("unknown kind of role 'shell'; the kinds are serve, "), "{error}");
}

#[test]
fn options_become_flags_and_arguments() {
    let load = words(
        RoleKind::LoadNtp,
        &[("target", &["192.0.2.1:123"]), ("rate", &["1k-2k"]), ("exponential", &["true"])],
    );
    let expected = ["load", "ntp", "--rate=1k-2k", "--exponential", "--json=/j/result"];
    assert_eq!(load[..5], expected);
    assert_eq!(load[5..], ["192.0.2.1:123"]);
    let serve =
        words(RoleKind::Serve, &[("listen", &["0.0.0.0:123", "[::]:123"]), ("local", &["false"])]);
    let listens = ["serve", "--listen=0.0.0.0:123", "--listen=[::]:123"];
    assert_eq!(serve[..3], listens);
    assert_eq!(serve[3..], ["--status-socket=/j/socket"]);
}

#[test]
fn a_relay_receives_a_table() {
    let input = options(&[
        ("listen", &["192.0.2.1:5000"]),
        ("source", &["192.0.2.0/24"]),
        ("rate", &["1.5k"]),
        ("child", &["192.0.2.5:5000", "192.0.2.9:5000"]),
    ]);
    let line = RoleKind::RelayRun.command_line(&input, &files()).unwrap();
    assert_eq!(
        line.table.unwrap(),
        "destinations = [\"192.0.2.5\", \"192.0.2.9\"]\n[[group]]\nname = \"campaign\"\n\
         listen = \"192.0.2.1:5000\"\nsources = [\"192.0.2.0/24\"]\n\
         children = [\"192.0.2.5:5000\", \"192.0.2.9:5000\"]\nrate = 1500\n"
    );
}

#[test]
fn a_task_file_replaces_one_task() {
    let with_tasks = |tasks| {
        options(&[
            ("listen", &["192.0.2.1:4460"]),
            ("nodes", &["2"]),
            ("period", &["20ms"]),
            ("compute", &["2ms"]),
            ("core", &["none"]),
            ("release-signal", &["udp"]),
            ("tasks", &[tasks]),
        ])
    };
    let line = |tasks| {
        let line = RoleKind::CycleLead.command_line(&with_tasks(tasks), &files()).unwrap();
        let words = line.argv.iter().map(|word| word.to_str().unwrap().to_owned());
        (words.collect::<Vec<_>>().join(" "), line.table)
    };
    let (words, table) = line("none");
    let one = "cycle run --join-timeout=30s --listen=192.0.2.1:4460 --nodes=2 --period=20ms --compute=2ms \
               --release-signal=udp --json=/j/result";
    assert_eq!((&*words, table), (one, None));
    let (words, table) = line(example(RoleOptionType::Tasks));
    let several = "cycle run --join-timeout=30s --listen=192.0.2.1:4460 --nodes=2 --release-signal=udp \
                   --json=/j/result /j/table";
    assert_eq!((&*words, table.as_deref()), (several, Some(example(RoleOptionType::Tasks))));
}

#[test]
fn what_a_kind_does_not_take_is_refused_by_name() {
    let target: (&str, &[&str]) = ("target", &["192.0.2.1"]);
    let rate: (&str, &[&str]) = ("rate", &["1k"]);
    let error = refused(RoleKind::LoadNtp, &[target, rate, ("i-own-this-target", &["true"])]);
    assert!(
        error.starts_with("load-ntp has no option 'i-own-this-target'; its options are "),
        "{error}"
    );
    let error = refused(RoleKind::LoadNtp, &[target]);
    assert!(error.starts_with("load-ntp requires the option 'rate': "), "{error}");
    let error = refused(RoleKind::LoadNtp, &[target, ("rate", &["1k", "2k"])]);
    assert_eq!(error, "'rate' of load-ntp has 2 values; specify one");
    let error = refused(RoleKind::Serve, &[("listen", &[])]);
    assert_eq!(error, "'listen' of serve has 0 values; specify one or more");
    for wrong in ["time.example", "--json=/etc/passwd", "192.0.2.1 -x", "", "fe80::1%eth0:1"] {
        let error = refused(RoleKind::LoadNtp, &[("target", &[wrong]), rate]);
        assert!(error.contains("of load-ntp, '"), "{error}");
    }
}

#[test]
fn every_option_takes_its_example_and_no_flag() {
    for kind in RoleKind::ALL {
        let required = kind.options().iter().filter(|option| option.required);
        let required: BTreeMap<_, _> = required
            .map(|option| (option.name.to_owned(), vec![example(option.value_type).to_owned()]))
            .collect();
        for option in kind.options() {
            for (value, fits) in
                [(example(option.value_type), true), ("--help", false), ("\"\n", false)]
            {
                let mut input = required.clone();
                input.insert(option.name.to_owned(), vec![value.to_owned()]);
                assert_eq!(
                    kind.parse_options(&input).is_ok(),
                    fits,
                    "{kind} {} {value}",
                    option.name
                );
            }
        }
    }
}

#[test]
fn the_guide_has_every_option() {
    let guide = include_str!("../../../../docs/campaign.md");
    for kind in RoleKind::ALL {
        let (_, section) = guide.split_once(&format!("`{kind}`: horolog")).unwrap();
        let section = section.split("\n#").next().unwrap();
        for option in kind.options() {
            let flags = [(option.required, "required"), (option.many, "several")];
            let flags: Vec<_> = flags.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
            let (name, value) = (option.name, option.value_type.name());
            let row = format!("| `{name}` | {value} | {} | {} |", flags.join(", "), option.help);
            assert!(section.contains(&row), "{kind}: {row}");
        }
    }
}

#[test]
fn what_no_command_takes_is_refused_before() {
    let path = |sizes: &str| {
        refused(RoleKind::PathUdp, &[("target", &["192.0.2.1"]), ("sizes", &[sizes])])
    };
    for (sizes, end) in [("70000", "70000"), ("64,15", "15"), ("64..64k:*2", "65536")] {
        let why = path(sizes);
        assert!(why.contains(&format!("'{end}' is outside 16 to 65507 bytes")), "{sizes}: {why}");
    }
    assert!(path("64..:2").contains("is no number or range; write such as"));
    let lead = |nodes: &str, slow: &[&str]| {
        let at = [("listen", &["192.0.2.1:1"][..]), ("nodes", &[nodes]), ("period", &["10ms"])];
        let pairs = [&at[..], &[("compute", &["1ms"][..]), ("slow-node", slow)]].concat();
        RoleKind::CycleLead.parse_options(&options(&pairs)).map(drop).map_err(|why| why.to_string())
    };
    assert_eq!(lead("3", &["1=2", "3=5"]), Ok(()));
    let why = "invalid 'slow-node' of cycle-lead, '7=5': node 7 does not exist; nodes are 1 to 3";
    assert_eq!(lead("3", &["3=5", "7=5"]), Err(why.to_owned()));
}

fn value() -> impl Strategy<Value = RoleOptionType> {
    prop_oneof![
        Just(RoleOptionType::Target),
        Just(RoleOptionType::TargetPort),
        Just(RoleOptionType::Network),
        Just(RoleOptionType::Rate),
        Just(RoleOptionType::Rates),
        Just(RoleOptionType::Time),
        Just(RoleOptionType::Count(10)),
        Just(RoleOptionType::Size),
        Just(RoleOptionType::Sizes(1, 1_000)),
        Just(RoleOptionType::Factor),
        Just(RoleOptionType::Cores),
        Just(RoleOptionType::Name),
        Just(RoleOptionType::Choice(&["auto", "udp"])),
        Just(RoleOptionType::Switch),
    ]
}

proptest! {
    /// Neither another flag nor another line of a table, whatever strangers send.
    #[test]
    fn no_value_is_more_than_one_word(
        value in value(),
        text in "[-0-9a-z.:/,*\"\n \\[\\]=µ]{0,30}|\\PC{0,20}",
    ) {
        if value.parse(&text).is_ok() {
            prop_assert!(!text.starts_with('-'), "{text:?}");
            prop_assert!(!text.contains(['"', '\n', ' ', '\0', '\\', '%']), "{text:?}");
        }
    }
}
