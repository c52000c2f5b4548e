"""The page and the tables of a study.

study_findings  what results.json holds
lookup          cells by place, titles
sheets          the tables as text in the paper's layouts; study_tables sets them in Markdown and LaTeX
glance          networks × sets: who leads, by how much, and is it significant
charts          audit rate beside gain, accuracy against AUOSCR
study_page      all of it as one HTML page, with the curves of each network
"""
