// A chart by uPlot, in the colours of the page. What it shows is told in words, too.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export interface Line {
  label: string;
  values: number[];
  colour: "--line-1" | "--line-2";
}

type Label = (value: number) => string;

export function Chart(props: { times: number[]; lines: Line[]; told: string; bars: boolean; value: Label; when: Label }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const own = place.current;
    if (own === null) return undefined;
    let chart: uPlot | null = null;
    const draw = (): void => {
      chart?.destroy();
      chart = new uPlot(options(own, props), [props.times, ...props.lines.map((line) => line.values)], own);
    };
    draw();
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    const resized = new ResizeObserver(() => chart?.setSize({ width: own.clientWidth, height: own.clientHeight }));
    scheme.addEventListener("change", draw);
    resized.observe(own);
    return () => {
      scheme.removeEventListener("change", draw);
      resized.disconnect();
      chart?.destroy();
    };
  }, [props.times.join(), props.lines.map((line) => line.values.join()).join(";")]);
  return (
    <figure>
      <div class="chart" role="img" aria-label={props.told} ref={place} />
      <figcaption class="note">
        {props.lines.map((line) => (
          <span key={line.label} class={`key key${line.colour.slice(-1)}`}>
            {line.label}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

function options(own: HTMLElement, props: { lines: Line[]; bars: boolean; value: Label; when: Label }): uPlot.Options {
  const style = getComputedStyle(own);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { show: false } };
  const bars = uPlot.paths.bars?.({ size: [0.7, 48], radius: 0.15 });
  const font = "12px system-ui, sans-serif";
  const edge = props.bars ? 43_200 : 0;
  return {
    width: own.clientWidth,
    height: own.clientHeight,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] }, x: { time: true, range: (_, first, last) => [first - edge, last + edge] } },
    axes: [
      { ...axis, font, grid: { show: false }, values: (_, splits) => splits.map((split) => props.when(split)) },
      { ...axis, font, size: 58, values: (_, splits) => splits.map((split) => props.value(split)) },
    ],
    series: [
      {},
      ...props.lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        fill: props.bars ? colour(line.colour) : `${colour(line.colour)}22`,
        width: props.bars ? 0 : 2,
        points: { show: false },
        ...(props.bars && bars ? { paths: bars } : {}),
      })),
    ],
  };
}
