//! HTML reports as displayed by a browser: on wide and narrow screens, light and dark.

use crate::bad_broker::{BadBroker, InjectedFault};
use crate::installed::{installed, leave_out};
use crate::program::{BenchRun, bench, report, scratch};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Script that inspects a page in frames of both widths, with all details open. Returns the
/// findings as JSON.
const LOOK: &str = include_str!("look.js");

/// Returns the findings of the browser at widths of 1400 and 400 pixels; `None` if there is no
/// browser.
fn look(page: &Path, is_dark: bool) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(page).expect("the page was written");
    let frame = |width: u32| {
        let text = text.replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<iframe style=\"border:0;width:{width}px;height:900px\" srcdoc=\"{text}\"></iframe>"
        )
    };
    let wrapper = page.with_extension(if is_dark { "dark.html" } else { "light.html" });
    let frames = [1400, 400].map(frame).concat();
    let both =
        format!("<!doctype html><meta charset=\"utf-8\"><body>{frames}<script>{LOOK}</script>");
    std::fs::write(&wrapper, both).expect("the scratch folder is ours");
    let profile = page.with_extension(if is_dark { "dark.d" } else { "light.d" });
    let chromium = installed("Chromium", "chromium")?;
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--no-first-run"])
        .args(["--disable-background-networking", "--window-size=1900,1000"])
        .args(["--virtual-time-budget=20000", "--force-color-profile=srgb"])
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark)))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", wrapper.display()))
        .output();
    let _ = std::fs::remove_dir_all(&profile);
    let output = output.expect("it is installed");
    let shown = String::from_utf8_lossy(&output.stdout);
    let found = shown.split_once("FOUND").and_then(|(_, rest)| rest.split_once("END"));
    let (found, _) = found.unwrap_or_else(|| panic!("{shown}"));
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&found).expect("JSON"))
}

/// Checks that no text is cut off, too small or of low contrast, at any width, and that every chart
/// has a description.
fn is_good_to_see(page: &Path) -> Option<Vec<Value>> {
    let mut light = Vec::new();
    for is_dark in [true, false] {
        light = look(page, is_dark)?;
        for found in &light {
            let where_ = format!("{} px, dark: {is_dark}", found["width"]);
            for key in ["cut", "low", "faint", "small"] {
                assert_eq!(found[key], json!([]), "{where_}: {key}");
            }
            assert!(found["page_width"].as_u64() <= found["width"].as_u64(), "{where_}");
            assert_eq!(found["unlabelled"], 0, "{where_}");
            assert!(found["cells"].as_u64() > Some(20), "{where_}");
            let background = if is_dark { "rgb(20, 24, 28)" } else { "rgb(255, 255, 255)" };
            assert_eq!(found["background"], background, "{where_}");
            // A person sees it without turning the wheel.
            assert!(found["sentence_at"].as_f64() < Some(700.0), "{where_}");
        }
    }
    Some(light)
}

fn file(name: &str) -> PathBuf {
    scratch().join(name)
}

fn times(found: &Value, text: &str) -> u64 {
    found["texts"][text].as_u64().unwrap_or(0)
}

/// Compares three godwits, one of them with a long name, and a broker that loses every tenth
/// message.
#[test]
fn a_comparison_of_four_shows_all_four_and_who_is_out() {
    let Some(own) = godwit() else { return };
    let lossy = BadBroker::start(InjectedFault::DropEvery(10));
    let long = "a third one, whose name says all that was changed in its configuration";
    let names = ["first", "second", long, "lossy"];
    let command = format!("{} serve --memory --listen tcp://127.0.0.1:{{port}}", own.display());
    let entries: String = names[..3]
        .iter()
        .map(|name| format!("[[broker]]\nname = \"{name}\"\ncommand = \"{command}\"\n"))
        .collect();
    let text = format!(
        "scenarios = [\"p2p-1k-1k-1k-1k\"]\nrounds = 2\nscale = 0.01\nrate = 20\nwarm = \"500ms\"\n\
         duration = \"2s\"\n{entries}[[broker]]\nname = \"lossy\"\nurl = \"tcp://{}\"\n",
        lossy.address
    );
    let order = file("four.toml");
    std::fs::write(&order, text).expect("the scratch folder is ours");
    let (page, table) = (file("four.html"), file("four.md"));
    let paths = [&order, &page, &table].map(|path| path.to_str().expect("text"));
    let run = bench(&["compare", paths[0], "--html", paths[1], "--markdown", paths[2]]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let Some(all) = is_good_to_see(&page) else { return };
    let table = std::fs::read_to_string(&table).expect("it was written");
    for found in &all {
        for name in names {
            // The picture, the bars, six charts and more, and the disclosure.
            assert!(times(found, name) > 12, "{name}: {}", times(found, name));
        }
        let sentence = found["sentence"].as_str().expect("a text");
        assert!(sentence.contains("lossy is out: it lost "), "{sentence}");
        assert!(!sentence.contains("lossy won"), "{sentence}");
        assert!(table.starts_with(&format!("# Comparison\n\n**{sentence}**\n")), "{table}");
        let bars = found["bars"].as_array().expect("a list");
        assert!(bars.len() == 4 && bars.iter().all(|bar| bar.as_f64() > Some(1.0)), "{bars:?}");
        assert!(found["charts"].as_u64() > Some(12), "{}", found["charts"]);
    }
}

/// Returns the path of the `godwit` next to the program under test, which is built if missing.
fn godwit() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_BIN_EXE_godwit-bench")).with_file_name("godwit");
    if !own.is_file() {
        drop(crate::brokers::godwit_with(|_| Vec::new()));
    }
    Some(own)
}

/// Returns a report with known figures.
fn known(broker: &str, scenario: &str, p99: f64) -> Value {
    let second = |t: u32, phase: &str| {
        json!({ "t": t, "phase": phase, "received": 100, "published": 100,
                "sub_ms": { "p50": p99 / 2.0, "p99": p99 } })
    };
    let phases = ["connect", "warm_up", "measure", "measure", "measure", "drain"];
    let seconds: Vec<Value> = phases.iter().zip(0..).map(|(phase, t)| second(t, phase)).collect();
    json!({
        "tool": "godwit-bench",
        "version": "0.1.0",
        "scenario": { "name": scenario },
        "began_unix_s": 1_700_000_000,
        "target": { "broker": broker },
        "counts": { "pub": 300 },
        "messages": { "expected": 300, "received": 300, "lost": 0 },
        "rates": { "published": 100.0, "received": 100.0 },
        "clients": { "planned": 20, "live_at_start": 20 },
        "samplers": [{ "name": "Sub", "hits": 300, "p50": p99 / 2.0, "p99": p99, "max": p99 }],
        "seconds": seconds,
        "faults": [],
    })
}

fn page_of(reports: &Value, name: &str) -> (PathBuf, BenchRun) {
    let (json, page) = (file(&format!("{name}.json")), file(&format!("{name}.html")));
    std::fs::write(&json, reports.to_string()).expect("the scratch folder is ours");
    let paths = [&json, &page].map(|path| path.to_str().expect("text"));
    let run = bench(&["report", paths[0], "--html", paths[1]]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    (page, run)
}

#[test]
fn the_sentence_names_the_winner_and_its_bar_is_the_shortest() {
    let reports = json!([known("slow", "fan", 9.0), known("quick", "fan", 3.0)]);
    let (page, _) = page_of(&reports, "winner");
    let Some(all) = is_good_to_see(&page) else { return };
    for found in &all {
        let says = "quick won fan: its 99th percentile of delivery latency is 3 ms; slow, the \
                    next, has 9, 3.0 times as much.";
        assert_eq!(found["sentence"], says);
        let bars: Vec<f64> =
            found["bars"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        assert!(bars.len() == 2 && (bars[1] / bars[0] - 3.0).abs() < 0.05, "{bars:?}");
        assert_eq!(times(found, "won"), 1);
    }
}

/// Several runs of one broker are distinguished on the page, and each scenario has a part of its
/// own.
#[test]
fn reports_of_one_broker_are_told_apart_on_their_page() {
    let reports = ["fan", "pairs", "fan", "pairs"].map(|scenario| known("mine", scenario, 2.0));
    let (page, _) = page_of(&json!(reports), "rounds");
    let Some(all) = is_good_to_see(&page) else { return };
    for found in &all {
        assert_eq!(
            [times(found, "fan and pairs"), times(found, "fan"), times(found, "pairs")],
            [1, 1, 1]
        );
        assert!(times(found, "mine") > 4 && times(found, "mine, run 2") > 4);
    }
}

#[test]
fn a_page_of_one_run_says_what_was_delivered() {
    let (_, run) = report(
        "connects_per_s = 1000\nwarm_s = 0.5\nmeasure_s = 2\n\
         [[group]]\nname = \"sub\"\nclients = 5\nsubscribe = [\"t/%i\"]\n\
         [[group]]\nname = \"pub\"\nclients = 5\npublish = \"t/%i\"\nper_s = 50\nsize = 64\n",
        BadBroker::start(InjectedFault::None).address,
        &["--html", file("one.html").to_str().expect("text")],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let Some(all) = is_good_to_see(&file("one.html")) else { return };
    for found in &all {
        let sentence = found["sentence"].as_str().expect("a text");
        assert!(
            sentence.contains("delivered all ") && sentence.contains(" once and in order"),
            "{sentence}"
        );
        assert_eq!(found["bars"].as_array().map(Vec::len), Some(5));
    }
}

/// A printed page is never dark, and has all details open.
#[test]
fn a_page_can_be_printed() {
    let reports = json!([known("one", "fan", 9.0), known("other", "fan", 3.0)]);
    let (page, _) = page_of(&reports, "paper");
    let text = std::fs::read_to_string(&page).expect("it was written");
    assert!(text.contains("@media screen and (prefers-color-scheme: dark)"));
    let Some(chromium) = installed("Chromium", "chromium") else {
        return leave_out("chromium is not installed");
    };
    let (pdf, profile) = (file("paper.pdf"), file("paper.d"));
    let _ = std::fs::remove_file(&pdf);
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--blink-settings=preferredColorScheme=0", "--disable-background-networking"])
        .arg(format!("--print-to-pdf={}", pdf.display()))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output();
    let _ = std::fs::remove_dir_all(&profile);
    let output = output.expect("it is installed");
    let pdf = std::fs::read(&pdf).unwrap_or_default();
    assert!(pdf.starts_with(b"%PDF"), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&pdf);
    let pages = text.matches("/Type /Page\n").count();
    assert!((2..8).contains(&pages), "{pages} pages");
}
