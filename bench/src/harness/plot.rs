//! Charts as SVG files: lines over axes, vertical marks, a legend beside the data.
//!
//! A chart is shown on pages of any colour, and an SVG inside a page does not reliably learn the
//! colour: a browser reports the preference of the system, not that of the page. The background is
//! therefore transparent, and every ink has enough contrast on white and on near-black, which a test
//! checks. Lines differ in hue, lightness and dashes, not only in red and green.

use kuva::plot::{LinePlot, ScatterPlot};
use kuva::render::color::Color;
use kuva::render::layout::{ComputedLayout, Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, Scene, TextAnchor, render_multiple};
use kuva::render::theme::Theme;
use serde::{Deserialize, Serialize};

/// One chart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Chart {
    pub name: String,
    pub title: String,
    /// The machine and the settings.
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
    /// True for a logarithmic axis, which shows only points above 0.
    pub log: bool,
}

/// One line through points of rising x.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub stroke: Stroke,
}

impl Line {
    /// A line of a contender: nowait's lines are solid.
    pub fn new(name: &str, points: Vec<(f64, f64)>, ours: bool) -> Line {
        Line {
            name: name.into(),
            points,
            stroke: match ours {
                true => Stroke::Solid,
                false => Stroke::Dashed,
            },
        }
    }
}

/// The way in which the points of a line are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stroke {
    Solid,
    Dashed,
    /// A dot for each point, without lines between them.
    Dots,
}

/// A vertical line with a label.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mark {
    pub at: f64,
    pub label: String,
}

/// The colours of lines in their order; further lines begin again. The palette is that of Okabe and
/// Ito for colour-blind readers, with a lightness for white and for near-black pages.
const INKS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#c06c9b", "#8f7500", "#7a7a7a",
];
/// The colour of text, axes and marks.
const TEXT: &str = "#767676";
/// The colour of the grid, which is fainter.
const GRID: &str = "#80808040";
/// The size of the chart without labels of marks, and the sizes of text, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LARGE: u32 = 17;
const TITLE: u32 = 15;
const WORDS: u32 = 12;
const SMALL: u32 = 11;
/// The height of one row of labels of marks.
const ROW: f64 = 14.0;
/// Half of the label of the last tick on the x axis.
const LAST_TICK: f64 = 20.0;
/// The size of a dot.
const DOT: f64 = 1.2;

impl Chart {
    /// The chart as a file of its own, with title and legend.
    pub fn svg(&self) -> String {
        self.titled(self.plots(|name| name.to_owned()), TITLE, false)
    }

    /// The chart as a file of its own, with title, and with the name of each line beside it.
    pub fn labelled_svg(&self) -> String {
        self.titled(self.plots(|_| String::new()), LARGE, true)
    }

    fn titled(&self, plots: Vec<Plot>, title: u32, is_labelled: bool) -> String {
        let layout = self.layout(&plots).with_width(WIDTH);
        let layout = layout
            .with_title(self.title.clone())
            .with_subtitle(self.subtitle.clone())
            .with_title_size(title)
            .with_subtitle_size(SMALL);
        self.scene(plots, layout, is_labelled)
    }

    /// The chart for a page that shows the title and the legend itself. `width` is in pixels.
    pub fn bare_svg(&self, width: f64) -> String {
        let plots = self.plots(|_| String::new());
        let mut layout = self.layout(&plots).with_width(width);
        if self.x.log && width < WIDTH && self.tenfolds() > 2.0 {
            // There is no room for the labels of 2, 5, 20, 50, …
            layout = layout.with_x_tick_format(ticks(|value| value.log10().fract().abs() < 1e-9));
        }
        self.scene(plots, layout, false)
    }

    /// The decimal logarithm of the largest x divided by the smallest.
    fn tenfolds(&self) -> f64 {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let all = points.map(|point| point.0).filter(|&x| self.x.shows(x));
        let (least, most) = all.fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        (most / least).log10()
    }

    /// The lines that have points, with their inks.
    pub fn shown(&self) -> impl Iterator<Item = (&Line, &'static str)> {
        let shows = |&(x, y): &(f64, f64)| self.x.shows(x) && self.y.shows(y);
        let lines = self.lines.iter().zip(INKS.iter().copied().cycle());
        lines.filter(move |(line, _)| line.points.iter().any(shows))
    }

    fn plots(&self, legend: impl Fn(&str) -> String) -> Vec<Plot> {
        let plot = |(line, ink): (&Line, &str)| {
            let mut points = line.points.clone();
            points.retain(|&(x, y)| self.x.shows(x) && self.y.shows(y));
            line.stroke.plot(points, ink, &legend(&line.name))
        };
        self.shown().map(plot).collect()
    }

    fn scene(&self, plots: Vec<Plot>, mut layout: Layout, is_labelled: bool) -> String {
        let bare = ComputedLayout::from_layout(&layout);
        let rows = ROW * self.marks.len() as f64;
        layout = layout
            .with_height(HEIGHT + rows)
            .with_force_margins(bare.margin_left, bare.margin_right.max(LAST_TICK))
            .with_force_margins_y(bare.margin_top + rows, bare.margin_bottom);
        let computed = ComputedLayout::from_layout(&layout);
        let mut scene = render_multiple(plots, layout);
        self.add_marks(&mut scene, &computed);
        if is_labelled {
            self.add_names(&mut scene, &computed);
        }
        kuva::backend::svg::SvgBackend::new().render_scene(&scene)
    }

    fn layout(&self, plots: &[Plot]) -> Layout {
        let mut layout = Layout::auto_from_plots(plots)
            .with_height(HEIGHT)
            .with_theme(theme())
            .with_x_label(self.x.label.clone())
            .with_y_label(self.y.label.clone())
            .with_label_size(WORDS)
            .with_tick_size(SMALL)
            .with_body_size(WORDS)
            .with_legend_box(false);
        if plots.is_empty() {
            // Without points there is no scale.
            return layout;
        }
        if self.x.log {
            layout = layout.with_log_x().with_x_tick_format(ticks(|_| true));
        }
        if self.y.log {
            layout = layout.with_log_y().with_y_tick_format(ticks(|_| true));
        }
        layout
    }

    /// Adds the name of each line to the right of its middle.
    fn add_names(&self, scene: &mut Scene, computed: &ComputedLayout) {
        for (line, ink) in self.shown() {
            let at = |&&(x, y): &&(f64, f64)| self.x.shows(x) && self.y.shows(y);
            let points: Vec<_> = line.points.iter().filter(at).collect();
            let heights = points.iter().map(|point| computed.map_y(point.1));
            let (top, bottom) = heights.fold((f64::MAX, 0.0_f64), |(a, b), y| (a.min(y), b.max(y)));
            let from_middle = |y| (computed.map_y(y) - f64::midpoint(top, bottom)).abs();
            let middle = points
                .iter()
                .min_by(|a, b| from_middle(a.1).total_cmp(&from_middle(b.1)));
            let Some(&&(x, y)) = middle else { continue };
            scene.add(Primitive::Text {
                x: computed.map_x(x) + 12.0,
                y: computed.map_y(y) + 5.0,
                content: line.name.clone(),
                size: LARGE,
                anchor: TextAnchor::Start,
                rotate: None,
                bold: true,
                color: Some(Color::from(ink)),
            });
        }
    }

    /// Adds vertical lines with labels above the axes. The label of each mark is one row lower than
    /// that of the mark to its left, so that no line crosses a label.
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
                x: (x + 4.0).min(computed.width - width).max(0.0),
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
        };
        let legend = |line: LinePlot| match name {
            "" => Plot::Line(line),
            name => Plot::Line(line.with_legend(name)),
        };
        match self {
            Stroke::Solid => legend(line(points)),
            Stroke::Dashed => legend(line(points).with_dashed()),
            Stroke::Dots => {
                let dots = ScatterPlot::new().with_data(points).with_color(ink);
                let dots = dots.with_size(DOT);
                Plot::Scatter(match name {
                    "" => dots,
                    name => dots.with_legend(name),
                })
            }
        }
    }
}

impl Axis {
    pub fn linear(label: &str) -> Axis {
        Axis {
            label: label.into(),
            log: false,
        }
    }

    pub fn log(label: &str) -> Axis {
        Axis {
            label: label.into(),
            log: true,
        }
    }

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

/// Ticks of a log axis as plain numbers: 0.5, 20, 3000, 2M.
fn ticks(is_labelled: fn(f64) -> bool) -> TickFormat {
    TickFormat::Custom(std::sync::Arc::new(move |value| match value {
        v if !is_labelled(v) => String::new(),
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
}
