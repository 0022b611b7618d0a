//! The hit rates as charts: rate on x, throughput, latency and the event loop's stall on y, one line a
//! peer.
//!
//! A chart is shown on pages of any colour, so its background is transparent and every ink keeps its
//! contrast on white and on near-black. Ours are solid, the others dashed; each has a marker and a hue
//! that no other one of its kind has.

use std::path::Path;

use kuva::plot::scatter::MarkerShape;
use kuva::plot::{LinePlot, ScatterPlot};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;
use kuva::render::theme::Theme;

use crate::areas::runtimes::cell::Work;
use crate::areas::runtimes::peer::Peer;
use crate::areas::runtimes::report::{Figure, Report};

/// Of words, axes and ticks.
const TEXT: &str = "#767676";

/// The charts: name, title, unit, figure.
const CHARTS: [(&str, &str, &str, Figure); 4] = [
    ("throughput", "Reads per second", "reads/s", Figure::Ops),
    ("p50", "Latency, median", "microseconds", Figure::P50),
    (
        "p99",
        "Latency, 99th percentile",
        "microseconds",
        Figure::P99,
    ),
    (
        "tick",
        "Event loop's lateness, 99th percentile",
        "microseconds",
        Figure::TickP99,
    ),
];

/// Draws what was measured of hit rates, if anything was.
///
/// # Errors
/// If a file can't be written.
pub fn draw(report: &Report, directory: &Path) -> Result<(), String> {
    for (name, title, unit, figure) in CHARTS {
        let lines: Vec<(Peer, Vec<(f64, f64)>)> = Peer::ALL
            .into_iter()
            .map(|peer| (peer, line(report, peer, figure)))
            .collect();
        if lines.iter().all(|(_, points)| points.len() < 2) {
            continue;
        }
        let path = directory.join(format!("mixed-{name}.svg"));
        std::fs::write(
            &path,
            chart(title, unit, &report.machine.to_string(), &lines),
        )
        .map_err(|e| format!("{}: {e}; choose another --svg", path.display()))?;
    }
    Ok(())
}

/// A peer's medians, by hit rate.
fn line(report: &Report, peer: Peer, figure: Figure) -> Vec<(f64, f64)> {
    let point = |measured: &crate::areas::runtimes::report::Measured| {
        let Work::Mixed(rate) = measured.cell.work else {
            return None;
        };
        let y = figure.median(measured.rounds(peer)?)?;
        // On a log scale there is nothing else.
        (y > 0.0).then_some((rate as f64, y))
    };
    report.cells.iter().filter_map(point).collect()
}

fn chart(title: &str, unit: &str, machine: &str, lines: &[(Peer, Vec<(f64, f64)>)]) -> String {
    let mut plots = Vec::new();
    for (peer, points) in lines.iter().filter(|(_, points)| !points.is_empty()) {
        let (ink, marker) = look(*peer);
        let line = LinePlot::new().with_data(points.clone()).with_color(ink);
        plots.push(Plot::Line(match peer.is_ours() {
            true => line.with_stroke_width(2.0),
            false => line.with_stroke_width(1.2).with_dashed(),
        }));
        plots.push(Plot::Scatter(
            ScatterPlot::new()
                .with_data(points.clone())
                .with_color(ink)
                .with_marker(marker)
                .with_size(4.0)
                .with_legend(peer.name()),
        ));
    }
    let text = || TEXT.to_owned();
    let theme = Theme {
        background: "none".into(),
        axis_color: text(),
        grid_color: "#80808040".into(),
        tick_color: text(),
        text_color: text(),
        legend_bg: "none".into(),
        legend_border: "none".into(),
        font_family: Some("DejaVu Sans, Liberation Sans, Arial, sans-serif".into()),
        ..Theme::light()
    };
    let layout = Layout::auto_from_plots(&plots)
        .with_width(760.0)
        .with_height(440.0)
        .with_theme(theme)
        .with_title(title.to_owned())
        .with_subtitle(format!("4 KiB random reads, 32 tasks; {machine}"))
        .with_x_label("hit rate in %".to_owned())
        .with_y_label(unit.to_owned())
        .with_title_size(15)
        .with_subtitle_size(11)
        .with_label_size(12)
        .with_tick_size(11)
        .with_body_size(12)
        .with_legend_box(false)
        .with_log_y()
        .with_y_tick_format(plain_ticks());
    let scene = render_multiple(plots, layout);
    kuva::backend::svg::SvgBackend::new().render_scene(&scene)
}

/// Hues after the palette of Okabe and Ito for colour-blind eyes, as dark or light as both kinds of
/// page need.
fn look(peer: Peer) -> (&'static str, MarkerShape) {
    const BLUE: &str = "#0072b2";
    const ORANGE: &str = "#d55e00";
    const GREEN: &str = "#009e73";
    const PINK: &str = "#c06c9b";
    const OLIVE: &str = "#8f7500";
    const GREY: &str = "#7a7a7a";
    match peer {
        Peer::Pread => (GREY, MarkerShape::Plus),
        Peer::SpawnBlocking => (OLIVE, MarkerShape::Square),
        Peer::TokioFs => (ORANGE, MarkerShape::Circle),
        Peer::TokioFsRing => (ORANGE, MarkerShape::Cross),
        Peer::TokioUring => (PINK, MarkerShape::Diamond),
        Peer::Compio => (PINK, MarkerShape::TriangleDown),
        Peer::Nowait => (BLUE, MarkerShape::Circle),
        Peer::NowaitStrict => (GREEN, MarkerShape::Triangle),
        Peer::NowaitThreads => (GREY, MarkerShape::Square),
        Peer::NowaitStream => (BLUE, MarkerShape::Star),
    }
}

/// 0.5, 20, 3000, 20k, 2M.
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

    #[test]
    fn every_peer_is_named_and_none_looks_like_another() {
        let lines: Vec<_> = Peer::ALL
            .into_iter()
            .map(|peer| (peer, vec![(0.0, 10.0), (100.0, 1000.0)]))
            .collect();
        let svg = chart("Reads", "reads/s", "a machine", &lines);
        for peer in Peer::ALL {
            assert!(svg.contains(peer.name()), "{}", peer.name());
        }
        let mut looks: Vec<String> = Peer::ALL
            .into_iter()
            .map(|peer| format!("{:?}", look(peer)))
            .collect();
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), Peer::ALL.len());
    }
}
