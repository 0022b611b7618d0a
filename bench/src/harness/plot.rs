//! Charts as SVG files: lines over axes, vertical marks, a legend beside the data.
//!
//! A chart is shown on pages of any colour, and an SVG inside a page does not reliably learn which
//! (a browser tells it what the system prefers, not what the page does). So the background is
//! transparent, and every ink keeps its contrast on white and on near-black; a test holds them to
//! that. Lines are told apart by hue, lightness and dashes, not by red against green.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kuva::plot::{LinePlot, ScatterPlot};
use kuva::render::color::Color;
use kuva::render::layout::{ComputedLayout, Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, Scene, TextAnchor, render_multiple};
use kuva::render::theme::Theme;
use serde::{Deserialize, Serialize};

/// The option of every verb that can draw.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Svg {
    /// Also draw the result, as SVG files in this directory; it is made if it is not there
    #[arg(long = "svg", value_name = "DIR")]
    directory: Option<PathBuf>,

    /// With --svg: replace the SVG files that are there
    #[arg(long, requires = "directory")]
    force: bool,
}

impl Svg {
    /// Makes the directory, if one is wanted: before time goes into what could not be drawn.
    ///
    /// # Errors
    /// If nothing can be written there, or there are SVG files that are not to be replaced; says what
    /// to do.
    pub fn prepare(&self) -> Result<(), String> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let failed = |e: io::Error| {
            format!(
                "--svg {}: {e}; name a directory that you may write to, or one that can be made",
                directory.display()
            )
        };
        fs::create_dir_all(directory)
            .and_then(|()| tempfile::tempfile_in(directory).map(drop))
            .map_err(failed)?;
        if self.force {
            return Ok(());
        }
        for entry in fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "svg") {
                return Err(exists(&path));
            }
        }
        Ok(())
    }

    /// Draws a chart into that directory, if one is wanted. Says where it is then.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn draw(&self, name: &str, chart: &Chart) -> Result<Option<PathBuf>, String> {
        let Some(directory) = &self.directory else {
            return Ok(None);
        };
        let path = directory.join(name).with_extension("svg");
        if self.force {
            // What can't be removed is in the way of the new one, which says so.
            let _ = fs::remove_file(&path);
        }
        chart.write(&path)?;
        Ok(Some(path))
    }
}

fn exists(path: &Path) -> String {
    format!(
        "--svg: {} exists; name another directory, or replace it with --force",
        path.display()
    )
}

/// One chart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Chart {
    /// The name of its file, without the extension.
    pub name: String,
    pub title: String,
    /// Under what circumstances: machine, settings.
    pub subtitle: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    pub marks: Vec<Mark>,
}

/// One axis.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// Logarithmic: only points above 0 are shown.
    pub log: bool,
}

/// One line through points of growing x.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub stroke: Stroke,
}

/// How a line's points are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stroke {
    Solid,
    Dashed,
    /// Not at all: a dot for each, in any order.
    Dots,
}

/// A vertical line with words at it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mark {
    pub at: f64,
    pub label: String,
}

/// Of the lines, in their order; more lines begin again. After the palette of Okabe and Ito for
/// colour-blind eyes, as dark or light as both kinds of page need.
const INKS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#c06c9b", "#8f7500", "#7a7a7a",
];
/// Of words, axes and marks.
const TEXT: &str = "#767676";
/// Of the grid: fainter on purpose.
const GRID: &str = "#80808040";
/// Of the picture without marks' words, and of words, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const TITLE: u32 = 15;
const WORDS: u32 = 12;
const SMALL: u32 = 11;
/// Of one row of marks' words.
const ROW: f64 = 14.0;
/// Of one dot.
const DOT: f64 = 1.2;

impl Chart {
    /// Writes it as an SVG file, which must not be there.
    ///
    /// # Errors
    /// If the file can't be written.
    fn write(&self, path: &Path) -> Result<(), String> {
        File::create_new(path)
            .and_then(|mut file| file.write_all(self.svg().as_bytes()))
            .map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => exists(path),
                _ => format!("cannot write {}: {e}; choose another --svg", path.display()),
            })
    }

    fn svg(&self) -> String {
        let plots: Vec<Plot> = self
            .lines
            .iter()
            .zip(INKS.iter().cycle())
            .filter_map(|(line, ink)| {
                let mut shown = line.points.clone();
                shown.retain(|&(x, y)| self.x.shows(x) && self.y.shows(y));
                if shown.is_empty() {
                    return None;
                }
                Some(line.stroke.plot(shown, ink, &line.name))
            })
            .collect();
        let mut layout = self.layout(&plots);
        let bare = ComputedLayout::from_layout(&layout);
        let rows = ROW * self.marks.len() as f64;
        layout = layout
            .with_height(HEIGHT + rows)
            .with_force_margins_y(bare.margin_top + rows, bare.margin_bottom);
        let computed = ComputedLayout::from_layout(&layout);
        let mut scene = render_multiple(plots, layout);
        self.add_marks(&mut scene, &computed);
        kuva::backend::svg::SvgBackend::new().render_scene(&scene)
    }

    fn layout(&self, plots: &[Plot]) -> Layout {
        let mut layout = Layout::auto_from_plots(plots)
            .with_width(WIDTH)
            .with_height(HEIGHT)
            .with_theme(theme())
            .with_title(self.title.clone())
            .with_subtitle(self.subtitle.clone())
            .with_x_label(self.x.label.clone())
            .with_y_label(self.y.label.clone())
            .with_title_size(TITLE)
            .with_subtitle_size(SMALL)
            .with_label_size(WORDS)
            .with_tick_size(SMALL)
            .with_body_size(WORDS)
            .with_legend_box(false);
        if plots.is_empty() {
            // Without points there is no scale.
            return layout;
        }
        if self.x.log {
            layout = layout.with_log_x().with_x_tick_format(plain_ticks());
        }
        if self.y.log {
            layout = layout.with_log_y().with_y_tick_format(plain_ticks());
        }
        layout
    }

    /// Vertical lines with words above the axes, where no data is. Each one's words are a row lower
    /// than those of the last one to its left, and its line ends below them: none crosses another's.
    fn add_marks(&self, scene: &mut Scene, computed: &ComputedLayout) {
        let (left, right) = (computed.margin_left, computed.width - computed.margin_right);
        let (top, bottom) = (
            computed.margin_top,
            computed.height - computed.margin_bottom,
        );
        let mut marks: Vec<(f64, &Mark)> = self
            .marks
            .iter()
            .filter(|mark| self.x.shows(mark.at))
            .map(|mark| (computed.map_x(mark.at), mark))
            .filter(|(x, _)| (left..=right).contains(x))
            .collect();
        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (rows_below, (x, mark)) in (0..marks.len()).rev().zip(marks) {
            let y = top - ROW * rows_below as f64 - 4.0;
            scene.add(Primitive::Line {
                x1: x,
                y1: y - f64::from(SMALL),
                x2: x,
                y2: bottom,
                stroke: Color::from(TEXT),
                stroke_width: 1.0,
                stroke_dasharray: Some("2 3".into()),
            });
            let width = 0.65 * f64::from(SMALL) * mark.label.chars().count() as f64;
            scene.add(Primitive::Text {
                x: (x + 4.0).min(WIDTH - width),
                y,
                content: mark.label.clone(),
                size: SMALL,
                anchor: TextAnchor::Start,
                rotate: None,
                bold: false,
                color: Some(Color::from(TEXT)),
            });
        }
    }
}

impl Stroke {
    fn plot(self, points: Vec<(f64, f64)>, ink: &str, name: &str) -> Plot {
        let line = |points| {
            LinePlot::new()
                .with_data(points)
                .with_color(ink)
                .with_stroke_width(2.0)
                .with_legend(name)
        };
        match self {
            Stroke::Solid => Plot::Line(line(points)),
            Stroke::Dashed => Plot::Line(line(points).with_dashed()),
            Stroke::Dots => Plot::Scatter(
                ScatterPlot::new()
                    .with_data(points)
                    .with_color(ink)
                    .with_size(DOT)
                    .with_legend(name),
            ),
        }
    }
}

impl Axis {
    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }
}

fn theme() -> Theme {
    let text = || TEXT.to_owned();
    Theme {
        background: "none".into(),
        axis_color: text(),
        grid_color: GRID.into(),
        tick_color: text(),
        text_color: text(),
        legend_bg: "none".into(),
        legend_border: "none".into(),
        font_family: Some("DejaVu Sans, Liberation Sans, Arial, sans-serif".into()),
        ..Theme::light()
    }
}

/// 0.5, 20, 3000, 2M: a log axis of times or rates is read, not calculated with.
fn plain_ticks() -> TickFormat {
    TickFormat::Custom(std::sync::Arc::new(|value| match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e4 => format!("{}k", v / 1e3),
        v => format!("{}", (v * 1e6).round() / 1e6),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let line = |name: &str, slope: f64, stroke| Line {
            name: name.into(),
            points: (0..=10)
                .map(|i| f64::from(i) * 10.0)
                .map(|x| (x, 90.0 - x * slope))
                .collect(),
            stroke,
        };
        Chart {
            name: "one".into(),
            title: "Time per read & hit rate".into(),
            subtitle: "a machine".into(),
            x: Axis {
                label: "hit rate %".into(),
                log: false,
            },
            y: Axis {
                label: "us".into(),
                log: true,
            },
            lines: vec![
                line("always", 0.89, Stroke::Solid),
                line("never <", 0.5, Stroke::Solid),
                line("ask", 0.7, Stroke::Dashed),
                line("strict", 0.6, Stroke::Dashed),
                line("adaptive", 0.85, Stroke::Solid),
                line("another", 0.2, Stroke::Dots),
            ],
            marks: vec![
                Mark {
                    at: 31.0,
                    label: "break-even 31 %".into(),
                },
                Mark {
                    at: 30.0,
                    label: "2015: 30 %".into(),
                },
                Mark {
                    at: 400.0,
                    label: "beyond".into(),
                },
            ],
        }
    }

    /// The relative luminance of the Web Content Accessibility Guidelines.
    fn luminance(ink: &str) -> f64 {
        let channel = |i: usize| {
            let c = f64::from(u8::from_str_radix(&ink[i..i + 2], 16).unwrap()) / 255.0;
            if c <= 0.040_45 {
                c / 12.92
            } else {
                ((c + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn every_ink_is_seen_on_white_and_on_black() {
        for (inks, least) in [(&INKS[..], 3.0), (&[TEXT][..], 4.0)] {
            for ink in inks {
                for page in ["#ffffff", "#0d1117"] {
                    let (a, b) = (luminance(ink) + 0.05, luminance(page) + 0.05);
                    let contrast = a.max(b) / a.min(b);
                    assert!(contrast >= least, "{ink} on {page}: {contrast:.2}");
                }
            }
        }
    }

    #[test]
    fn all_that_is_shown_is_named_and_nothing_covers_the_page() {
        let svg = chart().svg();
        for word in [
            "always",
            "never &lt;",
            "per read &amp; hit",
            "2015: 30 %",
            "a machine",
        ] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(!svg.contains("beyond"), "a mark off the axis");
        assert!(!svg.contains("white") && !svg.contains("#ffffff"), "{svg}");
    }

    #[test]
    fn what_a_log_axis_can_not_show_is_left_out() {
        let mut chart = chart();
        chart.lines[0].points[3].1 = 0.0;
        chart.lines[1].points.clear();
        chart.lines[2].points[0].1 = f64::NAN;
        assert!(!chart.svg().contains("NaN"));
        chart.lines.truncate(1);
        chart.lines[0].points.truncate(1);
        assert!(!chart.svg().contains("NaN"), "one point");
        chart.lines.clear();
        assert!(!chart.svg().contains("NaN"), "nothing was measured");
    }

    #[test]
    fn a_directory_is_made_or_the_message_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let svg = |path: PathBuf| Svg {
            directory: Some(path),
            force: false,
        };
        let deep = svg(dir.path().join("a/b"));
        deep.prepare().unwrap();
        let path = deep.draw("one", &chart()).unwrap().unwrap();
        assert!(fs::read_to_string(path).unwrap().starts_with("<svg"));
        fs::write(dir.path().join("file"), []).unwrap();
        let said = svg(dir.path().join("file")).prepare().unwrap_err();
        assert!(
            said.contains("--svg") && said.contains("name a directory"),
            "{said}"
        );
        assert_eq!(Svg::default().draw("one", &chart()), Ok(None));
    }

    #[test]
    fn an_svg_file_that_is_there_is_replaced_by_force_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.svg");
        let svg = |force| Svg {
            directory: Some(dir.path().into()),
            force,
        };
        svg(false).prepare().unwrap();
        // It appears while the bench runs.
        fs::write(&path, "mine").unwrap();
        for said in [
            svg(false).prepare().unwrap_err(),
            svg(false).draw("one", &chart()).unwrap_err(),
        ] {
            assert!(said.contains("one.svg exists; name another"), "{said}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        svg(true).prepare().unwrap();
        svg(true).draw("one", &chart()).unwrap();
        assert!(fs::read_to_string(path).unwrap().starts_with("<svg"));
    }
}
