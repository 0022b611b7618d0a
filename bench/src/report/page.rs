//! The page of a report: one HTML file that needs no network.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::losses;
use super::part::Part;
use super::proposals::{PROPOSALS, Proposal};
use super::results::{Outcome, Report};
use crate::harness::plot::{Chart, Line, Stroke};
use crate::harness::run::Run;
use crate::harness::table::Table;
use nowait_cli::interval::Verdict;

const STYLE: &str = include_str!("page.css");

/// The widths of a chart in pixels: beside and below the breakpoint of the style sheet.
const WIDE: f64 = 760.0;
const NARROW: f64 = 320.0;

impl Report {
    /// The page.
    pub fn html(&self) -> String {
        let body = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    // The browser asks for no icon.
                    link rel="icon" href="data:,";
                    title { "nowait: measured" }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    (self.head())
                    @for proposal in &PROPOSALS { (self.section(proposal)) }
                    (self.losses())
                    (self.skipped())
                    (self.commands())
                }
            }
        };
        body.into_string()
    }

    fn head(&self) -> Markup {
        html! {
            header {
                h1 { "nowait: measured beside what programs use" }
                @if let Some(run) = self.runs().next() {
                    p {
                        "nowait " (run.version) " on " (run.machine) ", "
                        (run.date.get(..10).unwrap_or_default()) "."
                    }
                    @if run.machine.free_page_reporting {
                        p.note {
                            "This virtual machine reports its free memory to its host. Before each cold \
                             turn as much memory as the turn needs was used and freed."
                        }
                    }
                }
                p.about {
                    "Contenders took turns within each round, with the same files, places and advice, and \
                     with the page cache in the same state. A ratio is the median of the ratios within \
                     the rounds, with the range that holds the true median with the stated probability. \
                     "
                    span.better { "Better" } " and " span.worse { "worse" }
                    " mark ratios whose whole range is on one side of 1. Grey boxes quote tables that \
                     others published, on their machines."
                }
                nav {
                    ul {
                        @for proposal in &PROPOSALS { li { a href={ "#" (proposal.name) } { (proposal.title) } } }
                        li { a href="#losses" { "Losses" } }
                        li { a href="#commands" { "Commands" } }
                    }
                }
            }
        }
    }

    fn section(&self, proposal: &Proposal) -> Markup {
        html! {
            section id=(proposal.name) {
                h2 { (proposal.title) }
                p { (proposal.about) }
                @for published in proposal.tables() {
                    div.published { (table(&published)) }
                }
                @for (part, outcome) in self.parts_of(proposal) {
                    (self.part(part, outcome))
                }
            }
        }
    }

    fn part(&self, part: &Part, outcome: &Outcome) -> Markup {
        html! {
            article id={ "part-" (part.name) } {
                h3 { (part.title) }
                p.about { (part.about) }
                @match outcome {
                    Outcome::Skipped(why) => p.note { "Not measured: " (why) },
                    Outcome::Measured(run) => (measured(run)),
                }
            }
        }
    }

    fn losses(&self) -> Markup {
        let tables = self.measured();
        let tables = tables.filter_map(|(part, run)| losses::table(run, part.title));
        let tables: Vec<Table> = tables.collect();
        html! {
            section id="losses" {
                h2 { "Losses" }
                p {
                    "All ratios in which one of nowait's contenders is worse than a contender that is not \
                     nowait, with the whole range."
                }
                @if tables.is_empty() { p { "There are none in this report." } }
                @for losses in &tables { div.words { (table(losses)) } }
            }
        }
    }

    fn skipped(&self) -> Markup {
        let absent = || {
            self.measured().flat_map(|(part, run)| {
                let cells = run.cells.iter().flat_map(|cell| &cell.absent);
                cells.map(move |absent| (part.title, &absent.name, &absent.why))
            })
        };
        html! {
            section id="skipped" {
                h2 { "Not measured" }
                ul {
                    @for (part, outcome) in &self.parts {
                        @if let Outcome::Skipped(why) = outcome { li { (part.title) ": " (why) } }
                    }
                    @for (part, name, why) in absent() { li { (part) ", " (name) ": " (why) } }
                }
            }
        }
    }

    fn commands(&self) -> Markup {
        html! {
            section id="commands" {
                h2 { "Commands" }
                p { "Each part is one command. A turn of a contender begins with the state that is named." }
                dl {
                    @for (part, run) in self.measured() {
                        dt { code { (run.command) } }
                        dd {
                            (part.title) ". " (run.machine) ". "
                            (run.settings.get("cache").and_then(|how| how.as_str()).unwrap_or_default())
                        }
                    }
                }
            }
        }
    }
}

fn measured(run: &Run) -> Markup {
    html! {
        @for chart in &run.charts { (figure(chart)) }
        @for measured in &run.tables { (table(measured)) }
        @for note in &run.notes { p.note { "Note: " (note) } }
        @if run.interrupted { p.note { "Interrupted: fewer rounds than planned." } }
    }
}

fn table(table: &Table) -> Markup {
    html! {
        p.caption {
            (table.title)
            @if let Some(source) = &table.source { small { (source) } }
        }
        div.scroll tabindex="0" {
            table aria-label=(table.title) {
                thead { tr { @for column in &table.columns { th scope="col" { (column) } } } }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for entry in row {
                                td.better[entry.verdict == Some(Verdict::Better)]
                                    .worse[entry.verdict == Some(Verdict::Worse)] { (entry.text) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn figure(chart: &Chart) -> Markup {
    html! {
        figure id={ "chart-" (chart.name) } {
            figcaption { strong { (chart.title) } " — " (chart.subtitle) }
            ul.legend { @for (line, ink) in chart.shown() { li { (swatch(line, ink)) (line.name) } } }
            @for (class, width) in [("wide", WIDE), ("narrow", NARROW)] {
                div class=(class) role="img" aria-label=(chart.title) {
                    (PreEscaped(chart.bare_svg(width)))
                }
            }
        }
    }
}

/// A piece of a line as the chart has it.
fn swatch(line: &Line, ink: &str) -> Markup {
    let dashes = match line.stroke {
        Stroke::Solid => "none",
        Stroke::Dashed => "6 4",
        Stroke::Dots => "2 4",
    };
    html! {
        svg width="28" height="8" aria-hidden="true" {
            line x1="0" y1="4" x2="28" y2="4" stroke=(ink) stroke-width="2" stroke-dasharray=(dashes) {}
        }
    }
}
